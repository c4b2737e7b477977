"""The documentation matches the product: everything that it names exists, and everything that must be named is named.

`python -m tests.docs.test_docs` rewrites the generated parts: the state diagram, and the tables of packages and of
settings.
"""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import typer.main

from mainspring.cli.commands import NOUNS, load_noun
from mainspring.cli.main import build
from mainspring.cli.settings import OTHER_VARIABLES, all_settings
from mainspring.domain.transitions import mermaid
from tests.sources import parsed

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "mainspring"
DOCS = ROOT / "docs"
ARCHITECTURE = DOCS / "architecture.md"
LIFECYCLE = DOCS / "lifecycle.md"
PACKAGES = DOCS / "packages.md"
OPERATING = DOCS / "operating.md"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
DECISIONS = sorted((DOCS / "decisions").glob("[0-9]*.md"))
INDEX = DOCS / "decisions" / "README.md"
COMMAND_LINE = DOCS / "command-line.md"

SECTIONS_OF_FEATURES = 9
STATES = {"done", "partly", "later"}
GUARANTEES = [f"S{number}" for number in range(1, 15)] + [f"L{number}" for number in range(1, 9)]

_DIAGRAM = re.compile(r"(<!-- run states -->\n```mermaid\n)(.*?)(```\n<!-- /run states -->)", re.DOTALL)
_PACKAGES = re.compile(r"(<!-- packages -->\n)(.*?)(<!-- /packages -->)", re.DOTALL)
_SETTINGS = re.compile(r"(<!-- settings -->\n)(.*?)(<!-- /settings -->)", re.DOTALL)
_NOUNS = re.compile(r"(<!-- nouns -->\n)(.*?)(<!-- /nouns -->)", re.DOTALL)
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*\.(?:py|sql|md|sh|toml|txt)")
_TEST = re.compile(r"(tests/[\w/]+\.py)((?:::\w+)+)")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_FOLDER = re.compile(r"[\w-]+(?:/[\w-]+)*/")
_CONTINUED = re.compile(r"\\\n\s*")


def on_pages(find: Callable[[Path], Iterable[object]]) -> dict[str, list[object]]:
    """What `find` finds on each page, for the pages where it finds something."""
    found = {page.relative_to(ROOT).as_posix(): list(find(page)) for page in PAGES}
    return {name: what for name, what in found.items() if what}


def without_blocks(text: str) -> str:
    return _FENCED.sub("", text)


def packages() -> list[Path]:
    """Every package of Mainspring: layers from the top down, the packages of each layer by name, and the kinds of task,
    whose modules belong to several layers."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    [layers] = [contract["layers"] for contract in settings["contracts"] if contract["type"] == "layers"]
    order = [name.strip().removeprefix("mainspring.") for layer in layers for name in layer.split("|")]
    order.insert(order.index("kernel"), "kinds")
    found = [path.parent.relative_to(PACKAGE) for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE]
    return sorted(found, key=lambda package: (order.index(package.parts[0]), package.parts))


def package_table() -> str:
    """One row for each package, with the first line of the docstring of its `__init__.py`."""
    lines = ["| package | what it contains |", "| --- | --- |"]
    for package in packages():
        docstring = ast.get_docstring(parsed((PACKAGE / package / "__init__.py").read_text()))
        assert docstring, f"{package}/__init__.py has no docstring"
        lines.append(f"| `{package.as_posix()}/` | {docstring.splitlines()[0].replace('|', chr(92) + '|')} |")
    return "\n".join(["", *lines, "", ""])


def settings_table() -> str:
    """One row for each setting: its key in mainspring.toml, its option, its variable, who has it, and what it is."""
    lines = ["| setting | option | variable | of | default | what it is |", "| --- | --- | --- | --- | --- | --- |"]
    for setting in sorted(all_settings(), key=lambda setting: (setting.key, setting.commands)):
        option, variable = (f"`{name}`" if name else "" for name in (setting.option, setting.variable))
        cells = [f"`{setting.key}`", option, variable, ", ".join(setting.commands), setting.default, setting.help]
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    for variable, words in OTHER_VARIABLES.items():
        option = "`--config`" if variable == "MAINSPRING_CONFIG" else ""
        lines.append(f"|  | {option} | `{variable}` | all |  | {words} |")
    return "\n".join(["", *lines, "", ""])


def noun_table() -> str:
    """One row for each noun of the command line, with its verbs."""
    lines = ["| noun | verbs |", "| --- | --- |"]
    for noun in map(load_noun, NOUNS):
        verbs = ", ".join(f"`{verb.name}`" for verb in noun.listed)
        lines.append(f"| `{noun.name}` | {verbs} |")
    return "\n".join(["", *lines, "", ""])


def paths_in(text: str) -> set[str]:
    """Every name in code style that looks like the path of a file or, with a slash at its end, of a folder."""
    names = _CODE.findall(without_blocks(text))
    return {name for name in names if _PATH.fullmatch(name) or _FOLDER.fullmatch(name)}


def exists(name: str, page: Path) -> bool:
    return any((base / name).exists() for base in (PACKAGE, ROOT, DOCS, page.parent))


def slugs(text: str) -> set[str]:
    """The anchors that Markdown makes from the headings of a page."""
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(without_blocks(text)))
    return {heading.strip().replace(" ", "-") for heading in words}


def command_lines(text: str) -> Iterator[list[str]]:
    """The words after `mainspring` in every command line of the page, in blocks and in running text."""
    shell = [block for language, block in _FENCED.findall(text) if language in ("", "sh", "bash")]
    lines = [line for block in shell for line in _CONTINUED.sub("", block).splitlines()]
    lines += _CODE.findall(without_blocks(text))
    for line in lines:
        found = re.match(r"(?:\.venv/bin/)?mainspring +(.+)", line)
        if found:
            yield shlex.split(found[1], comments=True)


def rows(text: str, key: str) -> dict[str, list[str]]:
    """The table rows whose first cell matches `key`. The first cell is the key of the result."""
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and re.fullmatch(key, cells[0]):
            found[cells[0]] = cells
    return found


def test_the_state_diagram_is_the_one_of_the_transition_table() -> None:
    found = _DIAGRAM.search(LIFECYCLE.read_text())
    assert found is not None, "the markers of the run states are missing"
    assert found[2].strip() == mermaid(), "run: python -m tests.docs.test_docs"


def test_the_table_of_packages_has_every_package_with_its_docstring() -> None:
    found = _PACKAGES.search(PACKAGES.read_text())
    assert found is not None, "the markers of the packages are missing"
    assert found[2] == package_table(), "run: python -m tests.docs.test_docs"


def test_the_table_of_packages_starts_with_the_layers_in_their_order() -> None:
    names = [package.as_posix() for package in packages()]
    assert names[0] == "cli" and names[-1] == "kernel"
    assert {"operations/submit", "worker/processes/watchdog"} <= set(names)


def test_every_path_that_is_named_is_there() -> None:
    examples = {"billing.py", "shop.py", "mainspring.toml"}  # files that the reader is asked to write

    def missing(page: Path) -> Iterator[str]:
        return (name for name in paths_in(page.read_text()) - examples if not exists(name, page))

    assert on_pages(missing) == {}


@cache
def defined_in(path: str) -> frozenset[str]:
    """The functions and classes of a file, none if there is no such file."""
    text = (ROOT / path).read_text() if (ROOT / path).exists() else ""
    return frozenset(re.findall(r"^\s*(?:async def|def|class) (\w+)\b", text, re.MULTILINE))


def test_every_test_that_is_named_is_there() -> None:
    def missing(page: Path) -> Iterator[str]:
        for found in _TEST.finditer(page.read_text()):
            if not set(found[2].split("::")[1:]) <= defined_in(found[1]):
                yield found[0]

    assert on_pages(missing) == {}


def test_every_link_inside_leads_somewhere() -> None:
    anchors = cache(lambda target: slugs(target.read_text()))

    def broken(page: Path) -> Iterator[str]:
        for link in _LINK.findall(without_blocks(page.read_text())):
            name, _, anchor = link.partition("#")
            target = page if not name else (page.parent / name).resolve()
            if re.match(r"[a-z]+:", link) is None and (
                not target.exists() or (anchor and anchor not in anchors(target))
            ):
                yield link

    assert on_pages(broken) == {}


def test_every_command_line_uses_verbs_and_options_that_exist() -> None:
    all_verbs: Any = typer.main.get_command(build())

    def wrong(page: Path) -> Iterator[str]:
        for words in command_lines(page.read_text()):
            command = all_verbs
            while words and words[0] in getattr(command, "commands", {}):
                command = command.commands[words.pop(0)]
                if command.hidden and page.name != "CHANGELOG.md":
                    yield f"{command.name!r} is an earlier name"
            is_noun = hasattr(command, "commands") and command.name in NOUNS
            default = load_noun(command.name).default if is_noun and words else None
            command = command if default is None else command.commands[default]
            if command.name == "mainspring" and words and words[0].islower() and words[0][0] != "-":
                yield f"no verb {words[0]!r}"
            known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
            for word in words:
                if re.match(r"--?[a-z]", word) and word not in known | {"--help"}:
                    yield f"mainspring {command.name} has no {word}"

    assert on_pages(wrong) == {}


def test_the_context_is_the_first_parameter_of_a_task() -> None:
    """Checkers see the names of the others only then."""
    assert on_pages(lambda page: re.findall(r"def \w+\([^)]+, ctx: Context\)", page.read_text())) == {}


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    def unknown(page: Path) -> set[str]:
        text = page.read_text()
        blocks = "\n".join(block for _, block in _FENCED.findall(text))
        named = re.findall(r"^make ([a-z-]+)", blocks, re.MULTILINE) + re.findall(r"`make ([a-z-]+)[^`]*`", text)
        return set(named) - targets

    assert on_pages(unknown) == {}


def test_the_first_screen_of_the_readme_has_the_two_commands_and_the_first_job() -> None:
    screen = "\n".join((ROOT / "README.md").read_text().splitlines()[:30])
    for needed in ("make run", "make test", "mainspring submit --command 'echo hello' --wait", "submit hello name=ada"):
        assert needed in screen


def test_the_readme_keeps_its_table_of_figures() -> None:
    text = (ROOT / "README.md").read_text()
    _, _, rest = text.partition("<!-- figures -->")
    table, marker, _ = rest.partition("<!-- /figures -->")
    assert marker and all(f"mainspring bench {bench}" in table for bench in ("throughput", "lag", "pickup"))


def test_no_page_knows_the_machine_it_was_written_on() -> None:
    assert on_pages(lambda page: re.findall(r"(?<![\w.])/(?:work|home|root|Users)/", page.read_text())) == {}


def test_every_line_of_the_features_has_a_row_with_a_state() -> None:
    """The rows of each section are numbered without gaps."""
    table = rows((DOCS / "requirements.md").read_text(), r"\d\.\d+")
    numbers = [tuple(map(int, number.split("."))) for number in table]
    lines = {section: [line for of, line in numbers if of == section] for section, _ in numbers}
    assert list(lines) == list(range(1, SECTIONS_OF_FEATURES + 1))
    assert {section: found for section, found in lines.items() if found != list(range(1, len(found) + 1))} == {}
    assert {number for number, cells in table.items() if cells[2] not in STATES} == set()


def test_what_is_done_names_the_test_that_shows_it() -> None:
    table = rows((DOCS / "requirements.md").read_text(), r"\d\.\d+")
    silent = {number for number, cells in table.items() if cells[2] == "done" and "tests/" not in cells[3]}
    assert silent == set()


def test_every_guarantee_has_a_row_with_a_test_or_an_honest_no() -> None:
    table = rows((DOCS / "guarantees.md").read_text(), r"[SL]\d+")
    assert list(table) == GUARANTEES
    unclear = {name for name, cells in table.items() if "tests/" not in cells[3] and "ot yet shown" not in cells[3]}
    assert unclear == set()


def test_every_pain_has_a_row_with_a_state_and_the_tests_that_are_about_it() -> None:
    text = (DOCS / "pains.md").read_text()
    table = rows(text, r"\d+")
    assert list(table) == [str(number) for number in range(1, len(table) + 1)]
    table |= rows(text.partition("Also asked for")[2], r"[a-z]+")
    unclear = {name for name, cells in table.items() if cells[2] not in {"immune", "partly", "later"}}
    silent = {name for name, cells in table.items() if cells[2] != "later" and not _TEST.search(cells[4])}
    assert unclear | silent == set()


def test_a_decision_says_context_choice_numbers_and_what_would_change_our_mind() -> None:
    wanted = ["Context", "Choice", "Numbers", "What would change our mind"]
    parts = re.compile(rf"\*\*({'|'.join(wanted)})\.\*\*")
    found = {page.name: list(dict.fromkeys(parts.findall(page.read_text()))) for page in DECISIONS}
    assert {name: said for name, said in found.items() if said != wanted} == {}
    assert [page.name for page in DECISIONS if not page.read_text().startswith(f"# {page.name[:4]} ")] == []
    index = INDEX.read_text()
    assert [page.name for page in DECISIONS if f"({page.name})" not in index] == []


def test_the_glossary_has_each_term_once_and_sorted_and_not_too_many() -> None:
    terms = re.findall(r"^\| \*\*(.+?)\*\*", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    assert terms == sorted(dict.fromkeys(terms), key=str.lower)
    assert len(terms) <= 100, len(terms)


def test_the_page_of_the_architecture_is_read_in_ten_minutes() -> None:
    assert len(ARCHITECTURE.read_text().split()) <= 2000


def test_decisions_are_numbered_without_gaps() -> None:
    assert [int(page.name[:4]) for page in DECISIONS] == list(range(1, len(DECISIONS) + 1))


def test_the_table_of_settings_has_every_setting_with_its_variable() -> None:
    found = _SETTINGS.search(OPERATING.read_text())
    assert found is not None, "the markers of the settings are missing"
    assert found[2] == settings_table(), "run: python -m tests.docs.test_docs"


def test_the_table_of_nouns_has_every_verb() -> None:
    found = _NOUNS.search(COMMAND_LINE.read_text())
    assert found is not None, "the markers of the nouns are missing"
    assert found[2] == noun_table(), "run: python -m tests.docs.test_docs"


def test_every_variable_that_the_code_reads_is_in_the_table_of_settings() -> None:
    # What a run gets, and what `mainspring up` and `mainspring server --processes` give their servers.
    given = {
        "JOB_ID",
        "RUN_ID",
        "ATTEMPT",
        "SCHEDULED_FOR",
        "IDEMPOTENCY_KEY",
        "PAYLOAD",
        "HELD_START",
        "SERVER_PROCESS",
    }
    texts = [file.read_text() for file in PACKAGE.rglob("*.py")]
    read = {name for text in texts for name in re.findall(r"\bMAINSPRING_([A-Z_]+[A-Z])\b", text)}
    listed = set(re.findall(r"`MAINSPRING_([A-Z_]+)`", settings_table()))
    assert read - given == listed


def write_generated_parts() -> None:
    COMMAND_LINE.write_text(_NOUNS.sub(lambda found: f"{found[1]}{noun_table()}{found[3]}", COMMAND_LINE.read_text()))
    OPERATING.write_text(_SETTINGS.sub(lambda found: f"{found[1]}{settings_table()}{found[3]}", OPERATING.read_text()))
    LIFECYCLE.write_text(_DIAGRAM.sub(lambda found: f"{found[1]}{mermaid()}\n{found[3]}", LIFECYCLE.read_text()))
    PACKAGES.write_text(_PACKAGES.sub(lambda found: f"{found[1]}{package_table()}{found[3]}", PACKAGES.read_text()))


if __name__ == "__main__":
    write_generated_parts()
