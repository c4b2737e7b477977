"""Help texts and imports of the command line."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable

import pytest

from mainspring.cli.bench import app as bench
from mainspring.cli.commands import COMMANDS, NOUNS, OLD_NAMES, TOPICS, load_command, load_noun
from mainspring.cli.noun import NounVerb
from mainspring.cli.shared_options import SHARED

Call = Callable[..., tuple[int, str, str]]
BENCHES = [command.name or command.callback.__name__ for command in bench.registered_commands]  # type: ignore[union-attr]
EVERY_VERB: list[tuple[list[str], NounVerb]] = [
    *(([name], load_command(name)) for name in COMMANDS),
    *(([noun, verb.name], verb) for noun in NOUNS for verb in load_noun(noun).listed),
]
IMPORTS = ("crontab", "systemd", "kubernetes", "celery", "apscheduler", "airflow")
# `audit export` prints JSON lines.
WITHOUT_JSON = (
    *(
        "secret new-key",
        "backup keep",
        "up",
        "server",
        "scheduler",
        "connect",
        "worker start",
        "top",
        "completion",
        "audit export",
        "export",
    ),
    *("schema", *(f"import {name}" for name in IMPORTS)),
)
SCREEN = 30


HELPS: dict[tuple[str, ...], str] = {}


@pytest.fixture
def help_of(call: Call, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], str]:
    """The help of a command in 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")

    def help_of(words: list[str]) -> str:
        if tuple(words) not in HELPS:
            code, out, _ = call(*words, "--help")
            assert code == 0, words
            HELPS[tuple(words)] = out
        return HELPS[tuple(words)]

    return help_of


@pytest.mark.slow
def test_every_verb_explains_itself_with_an_example(help_of: Callable[[list[str]], str]) -> None:
    for words in [words for words, _ in EVERY_VERB] + [["bench", name] for name in BENCHES]:
        out = help_of(words)
        _, found, examples = out.partition("Example")
        shown = ["worker"] if words == ["worker", "start"] else words
        assert found and f"mainspring {' '.join(shown)}" in examples, words


def test_help_fits_80_columns_and_its_examples_can_be_copied(help_of: Callable[[list[str]], str]) -> None:
    for words, verb in EVERY_VERB:
        out = help_of(words)
        assert [line for line in out.splitlines() if len(line) > 80] == [], words
        assert set(verb.examples) <= {line.strip() for line in out.splitlines()}, words


def test_every_verb_that_shows_data_speaks_json(help_of: Callable[[list[str]], str]) -> None:
    for words, _ in EVERY_VERB:
        has_json = "--json" in help_of(words)
        assert has_json == (" ".join(words) not in WITHOUT_JSON), words


def test_the_first_help_has_25_lines_and_names_what_there_is(call: Call) -> None:
    code, out, _ = call()
    assert (code, out) == (0, call("--help")[1])
    lines = out.splitlines()
    assert len(lines) <= 25 and max(map(len, lines)) <= 80
    named = {name for rows in TOPICS.values() for row in rows for name in row}
    assert named == {*COMMANDS, *NOUNS, "bench"}
    assert all(f" {name}" in out for name in named)
    assert all(line.startswith((*TOPICS, " ")) for line in lines[5:])


@pytest.mark.parametrize("noun", [*NOUNS, "bench"])
def test_the_help_of_a_group_fits_a_screen_and_names_every_verb(call: Call, noun: str) -> None:
    code, out, err = call(noun, "--help")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) <= SCREEN and max(map(len, lines)) <= 80
    first_words = [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "]
    assert first_words == (BENCHES if noun == "bench" else [verb.name for verb in load_noun(noun).listed])


def test_no_help_lists_an_earlier_name(call: Call) -> None:
    shown = {line.split()[0] for line in call("--help")[1].splitlines() if line}
    for noun in NOUNS:
        shown |= {line.split()[0] for line in call(noun, "--help")[1].splitlines() if line.startswith("  ")}
    words = shown - {verb.name for noun in NOUNS for verb in load_noun(noun).verbs.values()}
    assert not words & set(OLD_NAMES)


def test_a_group_without_a_default_shows_its_help(call: Call) -> None:
    for group in ("bench", "workflow", "token", "schedule"):
        assert call(group) == (0, call(group, "--help")[1], "")


def test_help_does_not_load_what_only_the_verbs_need() -> None:
    heavy = "{'asyncpg', 'uvicorn', 'httpx', 'msgspec', 'uvloop'}"
    code = f"import sys; from mainspring.cli.main import main; main(['--help']); print({heavy} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip().splitlines()[-1] == "set()"


def test_an_option_of_a_command_means_one_thing() -> None:
    """An option with the name of a shared one would be read as that: an address to call as the server."""
    for words, verb in EVERY_VERB:
        own = inspect.signature(verb.function, eval_str=True).parameters
        shared = [options.keys() for name, options in SHARED.items() if name in own]
        assert [name for name in own if any(name in options for options in shared)] == [], words
