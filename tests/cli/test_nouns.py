"""Nouns and verbs: what each name means, what goes on working under its earlier name, and what a typing error gets."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.main

from mainspring.cli.commands import COMMANDS, NOUNS, OLD_COMMANDS, OLD_NAMES, find_command, load_noun, load_verb
from mainspring.cli.main import build
from tests.sdk.wire_samples import job, problem, run

from .conftest import CannedServer
from .test_backfills import view as backfill
from .test_dead_letters import letter
from .test_limits import details, limit
from .test_operations import view as operation
from .test_workers import worker

Call = Callable[..., tuple[int, str, str]]
RUN_ID = run()["run_id"]
ROOT = Path(__file__).resolve().parents[2]
EARLIER = {
    name: words.split()
    for name, _, words in (
        line.partition(": ")
        for line in (Path(__file__).parent / "earlier_commands.txt").read_text().splitlines()
        if not line.startswith("#")
    )
}
CONNECTION = {"--url", "--token-file", "--data", "--ca", "--insecure-http"}
PREVIEWED = ("0 9 * * *", "--from", "2030-01-01T00:00:00Z")
# What is typed now for what was typed before. What is not here differs in the name alone.
TYPED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "run-now": (("run-now", "report"), ("job", "run", "report")),
    "edit": (("edit", "report", "--owner", "me"), ("job", "edit", "report", "--owner", "me")),
    "logs": (("logs", RUN_ID), ("run", "logs", RUN_ID)),
    "why": (("why", RUN_ID), ("run", "why", RUN_ID)),
    "timeline": (("timeline", RUN_ID, "--utc"), ("run", "timeline", RUN_ID, "--utc")),
    "retry": (("retry", RUN_ID), ("run", "retry", RUN_ID)),
    "operation-cancel": (("operation-cancel", RUN_ID), ("operation", "cancel", RUN_ID)),
    "backfill-status": (("backfill-status", RUN_ID), ("backfill", "show", RUN_ID)),
    "backfill-set": (("backfill-set", RUN_ID, "--concurrency", "8"), ("backfill", "set", RUN_ID, "--concurrency", "8")),
    "backfill-pause": (("backfill-pause", RUN_ID), ("backfill", "pause", RUN_ID)),
    "backfill-resume": (("backfill-resume", RUN_ID), ("backfill", "resume", RUN_ID)),
    "backfill-cancel": (("backfill-cancel", RUN_ID), ("backfill", "cancel", RUN_ID)),
    "replay": (("replay", "--job", "report"), ("dead-letter", "replay", "--job", "report")),
    "discard": (("discard", "--all"), ("dead-letter", "discard", "--all")),
    "preview": (("preview", *PREVIEWED), ("schedule", "preview", *PREVIEWED)),
    "drain": (("drain", "web-1"), ("worker", "drain", "web-1")),
    "breaker-reset": (("breaker-reset", "7"), ("breaker", "reset", "7")),
    "calendar-set": (("calendar-set", "c", "--weekdays", "MON"), ("calendar", "set", "c", "--weekdays", "MON")),
    "calendar-delete": (("calendar-delete", "c"), ("calendar", "delete", "c")),
    "tenant-add": (("tenant-add", "acme"), ("tenant", "add", "acme")),
    "token-add": (("token-add", "web", "--role", "worker"), ("token", "add", "web", "--role", "worker")),
    "token-revoke": (("token-revoke", RUN_ID), ("token", "revoke", RUN_ID)),
    "session-end": (("session-end", "abc"), ("session", "end", "abc")),
    "pause": (("pause", "report"), ("job", "pause", "report")),
    "resume": (("resume", "report"), ("job", "resume", "report")),
    "cancel": (("cancel", "report"), ("job", "cancel", "report")),
}
# Earlier commands with other words than the verb that does the same.
OTHER_WORDS = [
    (("pause", "--queue", "mails"), ("queue", "pause", "mails")),
    (("pause", "--all"), ("tenant", "pause")),
    (("pause", "--all-tenants"), ("tenant", "pause", "--all-tenants")),
    (("resume", "--queue", "mails"), ("queue", "resume", "mails")),
    (("resume", "--all", "--json"), ("tenant", "resume", "--json")),
    (("cancel", RUN_ID), ("run", "cancel", RUN_ID)),
    (("queue", "--tenant"), ("tenant", "show")),
    (("queue", "--tenant", "--concurrency", "7"), ("tenant", "set", "--concurrency", "7")),
    (("queue", "mails", "--rate", "5/s", "--burst", "2"), ("queue", "set", "mails", "--rate", "5/s", "--burst", "2")),
    (("queue", "mails", "--no-limits"), ("queue", "set", "mails", "--no-limits")),
    (("limit", "task:charge", "--set", "5"), ("limit", "set", "task:charge", "5")),
    (("limit", "7", "--reset"), ("limit", "reset", "7")),
    (("limit", "7", "--order", "priority"), ("limit", "set", "7", "--order", "priority")),
]
# A noun without a verb.
DEFAULTS = [
    (("job", "report"), ("job", "show", "report")),
    (("job", "--upcoming", "2", "report"), ("job", "show", "--upcoming", "2", "report")),
    (("job",), ("job", "show")),
    (("run", RUN_ID, "--json"), ("run", "show", RUN_ID, "--json")),
    (("dead-letter", RUN_ID), ("dead-letter", "show", RUN_ID)),
    (("operation", RUN_ID), ("operation", "show", RUN_ID)),
    (("calendar", "c"), ("calendar", "show", "c")),
    (("queue", "mails"), ("queue", "show", "mails")),
    (("limit", "task:charge"), ("limit", "show", "task:charge")),
    (("backfill", "report", "--from", "T", "--to", "T"), ("backfill", "create", "report", "--from", "T", "--to", "T")),
    (("worker", "--slots", "many"), ("worker", "start", "--slots", "many")),
    (("worker", "--isolation", "auto"), ("worker", "start", "--isolation", "auto")),
]


@pytest.fixture
def stocked(server: CannedServer) -> CannedServer:
    """What most commands ask for. Other calls are answered with 404, which both names report."""
    server.says("GET /v1/jobs", {"jobs": [job()], "next": None})
    server.says("GET /v1/runs", {"runs": [run()], "next": None})
    server.says("GET /v1/dead-letters", {"dead_letters": [letter()], "next": None})
    server.says("GET /v1/workers", {"workers": [worker(RUN_ID, "web-1")]})
    server.says("GET /v1/backfills", {"backfills": [backfill()], "next": None})
    server.says("GET /v1/operations", {"operations": [operation()], "next": None})
    server.says("GET /v1/limits", {"limits": [limit(7, "task:charge")], "next": None})
    for path in ("", ":pause", ":resume"):
        server.says(f"POST /v1/jobs/report{path}", job(status="PAUSED" if path == ":pause" else "SCHEDULED"))
        server.says(f"POST /v1/backfills/{RUN_ID}{path}", backfill())
    for method in ("GET", "PATCH", "DELETE"):
        server.says(f"{method} /v1/jobs/report", job(status="CANCELLED" if method == "DELETE" else "SCHEDULED"))
        server.says(f"{method} /v1/backfills/{RUN_ID}", backfill())
    server.says("GET /v1/jobs/report/status", {"job_id": "report", "status": "SCHEDULED", "latest_run": run()})
    for path in ("", ":cancel", ":retry"):
        server.says(f"{'POST' if path else 'GET'} /v1/runs/{RUN_ID}{path}", run())
    server.says(f"GET /v1/dead-letters/{RUN_ID}", letter())
    server.says(f"GET /v1/operations/{RUN_ID}", operation())
    server.says(f"POST /v1/operations/{RUN_ID}:cancel", operation())
    for method in ("GET", "PUT"):
        server.says(f"{method} /v1/limits/7", details(limit(7, "task:charge")))
    gate = {"queue": None, "concurrency": 7, "in_use": 0}
    for route in ("GET /v1/tenant/limits", "PUT /v1/tenant/limits", "POST /v1/pause", "POST /v1/resume"):
        server.says(route, gate)
    for route in ("PUT /v1/queues/mails", "POST /v1/queues/mails:pause", "POST /v1/queues/mails:resume"):
        server.says(route, gate | {"queue": "mails"})
    figures = {"depth": 3, "scheduled": 0, "running": 1, "oldest_seconds": None, "rate": 0.5, "workers": 1}
    server.says("GET /v1/queues/mails", {"name": "mails", **figures})
    server.says("GET /v1/queues", {"queues": [{"name": "mails", **figures}]})
    return server


def told(server: CannedServer, call: Call, *words: str) -> tuple[Any, ...]:
    """What the command printed, its exit code, and what it asked the server for."""
    server.asked.clear()
    code, out, err = call(*words)
    return code, out, err, list(server.asked)


def test_every_earlier_name_is_known_and_has_a_new_one() -> None:
    new = _new_nouns() | {
        "approval",
        "missed",
        "doctor",
        "apply",
        "export",
        "schema",
        "backup",
        "restore",
        "upgrade-database",
        "emit",
        "event",
        "sink",
        "source",
        "connect",
    }
    assert set(EARLIER) == {*OLD_NAMES, *COMMANDS, *NOUNS, *_of("workflow")} - new
    for old, now in OLD_NAMES.items():
        noun, _, verb = now.partition(" ")
        same = find_command(old).function is load_verb(noun, verb).function
        assert same != (old in OLD_COMMANDS), old
        assert load_verb(noun, verb).listed


def _of(noun: str) -> set[str]:
    return {f"{noun} {verb.name}" for verb in load_noun(noun).listed}


def _new_nouns() -> set[str]:
    """Nouns that were no command."""
    return {
        "workflow", "schedule", "breaker", "task", "tenant", "token", "secret", "session", "audit", "channel", "rule",
        "notification", "import", "user", "view",
    }  # fmt: skip


def test_every_earlier_command_has_its_arguments_and_options() -> None:
    root: Any = typer.main.get_command(build())
    for name, words in EARLIER.items():
        command = root
        for word in name.split():
            command = command.commands[word]
        if hasattr(command, "commands"):
            command = command.commands[load_noun(name).default]
        options = {flag for each in command.params for flag in (*each.opts, *each.secondary_opts) if flag[0] == "-"}
        assert {word for word in words if word[0] == "-"} <= options, name
        arguments = [each for each in command.params if each.param_type_name == "argument"]
        assert len(arguments) == len([word for word in words if word[0] != "-"]), name


@pytest.mark.parametrize("old", OLD_NAMES)
def test_an_earlier_name_does_what_the_new_one_does(stocked: CannedServer, call: Call, old: str) -> None:
    before, now = TYPED.get(old, ((old,), tuple(OLD_NAMES[old].split())))
    assert before[0] == old and " ".join(now[:2]) == OLD_NAMES[old]
    for more in ((), ("--json",)):
        first = told(stocked, call, *before, *more)
        assert first[3] or old == "preview", "it asks the server"
        assert told(stocked, call, *now, *more) == first
    misused = told(stocked, call, *before, "--nope")
    meant = told(stocked, call, *now, "--nope")
    assert misused[0] == meant[0] == 2
    assert misused[2].splitlines()[0] == meant[2].splitlines()[0] == "error: there is no option --nope"


@pytest.mark.parametrize(("before", "now"), OTHER_WORDS, ids=lambda words: " ".join(words))
def test_an_earlier_command_that_needed_other_words(
    stocked: CannedServer, call: Call, before: tuple[str, ...], now: tuple[str, ...]
) -> None:
    first = told(stocked, call, *before)
    assert first[0] == 0, first
    assert told(stocked, call, *now) == first


@pytest.mark.parametrize(("words", "meant"), DEFAULTS, ids=lambda words: " ".join(words))
def test_a_noun_without_a_verb_means_its_default(
    stocked: CannedServer, call: Call, words: tuple[str, ...], meant: tuple[str, ...]
) -> None:
    path = f"mainspring {' '.join(meant[:2])} --help"
    code, out, err, asked = told(stocked, call, *meant)
    first = told(stocked, call, *words)
    assert first in ((code, out, err, asked), (code, out, err.replace(path, f"mainspring {meant[0]} --help"), asked))


@pytest.mark.parametrize("verb", [verb.name for verb in load_noun("job").listed])
def test_an_id_that_is_a_verb_needs_show(stocked: CannedServer, call: Call, verb: str) -> None:
    stocked.says(f"GET /v1/jobs/{verb}", job(job_id=verb))
    stocked.says(f"GET /v1/jobs/{verb}/status", {"job_id": verb, "status": "SCHEDULED", "latest_run": None})
    code, out, _, asked = told(stocked, call, "job", "show", verb, "--upcoming", "0")
    assert code == 0 and out.split()[:2] == ["job", verb] and asked[0][0] == f"GET /v1/jobs/{verb}"
    asked = told(stocked, call, "job", verb)[3]
    assert all(route != f"GET /v1/jobs/{verb}" for route, _, _ in asked)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("job", "pasue", "report"), "mainspring job pause"),
        (("job", "submit", "hello"), "mainspring submit"),
        (("token", "ad"), "mainspring token add"),
        (("tokn", "add"), "mainspring token"),
        (("pasue", "report"), "mainspring job pause"),
        (("backfil-pause", "x"), "mainspring backfill pause"),
        (("sumbit", "hello"), "mainspring submit"),
        (("workflow", "aply", "file"), "mainspring workflow apply"),
        (("bench", "througput"), "mainspring bench throughput"),
        (("channel", "add", "ops"), "mainspring channel set"),
        (("secret", "create", "x"), "mainspring secret set"),
        (("token", "create", "web"), "mainspring token add"),
        (("job", "rm", "x"), "mainspring job cancel"),
        (("job", "why", "x"), "mainspring run why"),
        (("job", "logs", "x"), "mainspring run logs"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else None,
)
def test_a_word_that_is_no_command_is_refused_with_the_one_that_was_meant(
    stocked: CannedServer, call: Call, words: tuple[str, ...], meant: str
) -> None:
    code, out, err, asked = told(stocked, call, *words)
    assert (code, out, asked) == (2, "", [])
    first, second = err.splitlines()
    assert first.startswith("error: mainspring") and "has no command" in first
    assert f"did you mean `{meant}`" in second and "--help" in second


def test_an_id_that_is_almost_a_verb_may_be_one(stocked: CannedServer, call: Call) -> None:
    """A job can be called so. Only if there is none, the verb is named."""
    stocked.says("GET /v1/jobs/pasue", job(job_id="pasue"))
    assert call("job", "pasue", "--json")[0] == 0
    stocked.says("GET /v1/jobs/pasue", problem(404, "not_found", "there is no job 'pasue'"), status=404)
    code, _, err = call("job", "pasue")
    assert code == 3 and "hint: did you mean `mainspring job pause`?" in err
    code, _, err = call("job", "quite_other")
    assert code == 3 and "did you mean" not in err


def test_texts_name_the_commands_of_today() -> None:
    """Messages, help, docstrings, examples and pages of the dashboard. tests/docs does the same for documents."""
    earlier = re.compile(rf"\bmainspring ({'|'.join(sorted(OLD_NAMES, key=len, reverse=True))})(?![\w-])")
    files = [*ROOT.glob("src/**/*.py"), *ROOT.glob("examples/**/*"), *ROOT.glob("dashboard/src/**/*.ts*")]
    texts = {path: path.read_text() for path in files if path.suffix in (".py", ".sh", ".ts", ".tsx", ".md")}
    found = {f"{path.name}: {match[0]}" for path, text in texts.items() for match in earlier.finditer(text)}
    assert found == set()
    wider = re.compile(
        r"mainspring (queue [\w.]+ --(?:concurrency|rate|max-depth)|queue --tenant|limit \S+ --(?:set|reset))"
    )
    assert {match[0] for text in texts.values() for match in wider.finditer(text)} == set()


def test_a_verb_that_sets_needs_something_to_set(stocked: CannedServer, call: Call) -> None:
    for words in (("queue", "set", "mails"), ("tenant", "set"), ("limit", "set", "7")):
        code, _, err, asked = told(stocked, call, *words)
        assert code == 2 and "is given" in err and asked == [], words


def test_the_connection_options_come_from_one_place() -> None:
    """A command has all of them or none, by its parameter `server`."""
    root: Any = typer.main.get_command(build())
    own_data = {"up", "server", "backup", "restore", "upgrade-database"}
    for noun in set(NOUNS) - own_data:
        for verb in load_noun(noun).verbs.values():
            flags = {flag for each in root.commands[noun].commands[verb.name].params for flag in each.opts}
            has = "server" in inspect.signature(verb.function).parameters
            assert flags & CONNECTION == (CONNECTION if has else set()), (noun, verb.name)
    for name in set(COMMANDS) - own_data:
        flags = {flag for each in root.commands[name].params for flag in each.opts}
        assert flags & CONNECTION in (CONNECTION, set()), name


def _commands() -> list[tuple[str, ...]]:
    """Every command that calls a server, under each of its names, with words for what it requires."""
    root: Any = typer.main.get_command(build())
    nouns = {(noun, *name): command for noun in NOUNS for name, command in _verbs(root.commands[noun], noun)}
    alone = {(name,): root.commands[name] for name in (*COMMANDS, *OLD_NAMES)}
    found = []
    for words, command in (alone | nouns).items():
        if "--url" in {flag for each in command.params for flag in each.opts}:
            needed = [each for each in command.params if each.required]
            given = [[each.opts[0], "1"] if each.param_type_name == "option" else ["1"] for each in needed]
            found.append((*words, *(word for each in given for word in each)))
    return found


def _verbs(group: Any, noun: str) -> list[tuple[tuple[str, ...], Any]]:
    default = load_noun(noun).default
    named = [((verb.name,), group.commands[verb.name]) for verb in load_noun(noun).listed]
    return named if default is None else [*named, ((), group.commands[default])]


def test_no_command_sends_a_token_where_a_file_that_was_only_found_says(
    server: CannedServer, call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The settings file is read for a command under each of its names."""
    monkeypatch.delenv("MAINSPRING_URL")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mainspring.toml").write_text(f'url = "{server.url}"\n')
    commands = _commands()
    assert len(commands) > 120
    for words in commands:
        code, _, err = call(*words)
        assert code == 5 and "url is not used" in err, words
    assert server.asked == []
