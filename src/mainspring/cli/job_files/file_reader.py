"""Reads job files: their sections, what they include, and their variables. An error names the file and the line."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from mainspring.cli.job_files.toml_lines import TomlLines
from mainspring.cli.job_files.variables import filled, filled_text
from mainspring.cli.workflow_file import name_of, read_text, read_yaml, refused

if TYPE_CHECKING:
    from mainspring.domain.errors import InvalidInput

_SETTINGS = ("owner", "include", "variables", "environments")
_SUFFIXES = (".yaml", ".yml", ".toml", ".json")
_MOST_FILES = 1000
_FORM = "a job file is a mapping: owner, jobs, workflows, calendars and other sections"


class Lines(Protocol):
    def line_of(self, path: Sequence[str | int]) -> int: ...


@dataclass(frozen=True, slots=True)
class FilePart:
    """One document of a file."""

    file: str
    data: dict[str, Any]
    lines: Lines

    def wrong(self, path: Sequence[str | int], detail: str, hint: str | None = None) -> InvalidInput:
        error = refused(f"{self.file}, line {self.lines.line_of(path)}: {detail}")
        error.field, error.hint = None, hint
        return error

    def form(self, yaml: str, toml: str) -> str:
        """A hint that shows how it is written in this kind of file."""
        return f"write {toml if isinstance(self.lines, TomlLines) else yaml}"


@dataclass(frozen=True, slots=True)
class EntryOfFile:
    """An object of a file. name: as the file writes it, which may have variables."""

    kind: str
    id: str
    body: dict[str, Any]
    part: FilePart
    name: str

    def line(self, field: Sequence[str | int] = ()) -> int:
        return self.part.lines.line_of([self.kind, self.name, *field])

    @property
    def source(self) -> str:
        return f"{self.part.file}:{self.line()}"

    def as_object(self) -> dict[str, Any]:
        return {"kind": self.kind, "id": self.id, "body": self.body, "source": self.source}


@dataclass(slots=True)
class JobFiles:
    """What the files have together."""

    owner: str
    entries: list[EntryOfFile]
    files: list[str] = field(default_factory=list)


def read_job_files(
    files: Iterable[str], *, environment: str | None = None, given: Mapping[str, str] | None = None
) -> JobFiles:
    """Read the files and folders, and all that they include. `given`: values of variables. Raises InvalidInput."""
    parts: list[FilePart] = []
    seen: set[str] = set()
    for file in files:
        _collect(file, parts, seen)
    if not parts:
        raise refused("the files have nothing", expected="jobs, workflows, calendars or another section")
    variables = _variables(parts, environment, given or {})
    entries = [entry for part in parts for entry in _entries(part, variables)]
    _check_twice(entries)
    return JobFiles(_owner(parts, variables), entries, sorted(seen))


def _collect(file: str, parts: list[FilePart], seen: set[str]) -> None:
    path = Path(file)
    if file != "-" and path.is_dir():
        for one in sorted(path.iterdir()):
            if one.suffix in _SUFFIXES:
                _collect(str(one), parts, seen)
        return
    key = file if file == "-" else str(path.resolve())
    if key in seen:
        return
    if len(seen) >= _MOST_FILES:
        raise refused(f"there are more than {_MOST_FILES} files")
    seen.add(key)
    for part in _documents(file):
        _check_sections(part)
        parts.append(part)
        for place, pattern in enumerate(_included(part)):
            found = [Path(pattern)] if Path(pattern).is_absolute() else sorted(path.parent.glob(pattern))
            if not found:
                raise part.wrong(["include", place], f"include: no file is called {pattern}")
            for included in found:
                _collect(str(included), parts, seen)


def _documents(file: str) -> list[FilePart]:
    name, text = name_of(file), read_text(file)
    if not name.endswith(".toml"):
        return [FilePart(name, data, lines) for data, lines in read_yaml(name, text, _FORM)]
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise refused(f"{name}: {error}") from None
    return [FilePart(name, _plain(data), TomlLines(text))]


def _plain(value: Any) -> Any:
    """Times of TOML as texts."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value.isoformat() if isinstance(value, datetime | date | time) else value


def _check_sections(part: FilePart) -> None:
    from mainspring.domain.texts import meant
    from mainspring.wire.files import FILE_KINDS

    known = (*_SETTINGS, *FILE_KINDS)
    for name, value in part.data.items():
        if name not in known:
            raise part.wrong([name], f"{name} is unknown", meant(name, known, f"a file has {', '.join(known)}"))
        if name in FILE_KINDS and not isinstance(value, dict):
            hint = part.form(f"{name}: {{nightly: {{...}}}}", f"[{name}.nightly]")
            raise part.wrong([name], f"{name} is not a mapping from names to {name}", hint)
        for entry, body in value.items() if name in FILE_KINDS else ():
            if not isinstance(body, dict):
                raise part.wrong([name, entry], f"{name}.{entry} is not a mapping")


def _included(part: FilePart) -> list[str]:
    found = part.data.get("include") or []
    if isinstance(found, str):
        found = [found]
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise part.wrong(["include"], "include is a list of files")
    return found


def _variables(parts: Sequence[FilePart], environment: str | None, given: Mapping[str, str]) -> dict[str, Any]:
    from mainspring.domain.texts import meant

    found: dict[str, Any] = {}
    environments: dict[str, dict[str, Any]] = {}
    for part in parts:
        for name, value in _mapping(part, ["variables"], part.data.get("variables")).items():
            if name in found and found[name] != value:
                raise part.wrong(["variables", name], f"the variable {name} has another value in another file")
            found[name] = value
        for name, values in _mapping(part, ["environments"], part.data.get("environments")).items():
            environments.setdefault(name, {}).update(_mapping(part, ["environments", name], values))
    if environment is not None and environment not in environments:
        known = ", ".join(environments) or "none"
        error = refused(f"there is no environment {environment}")
        error.hint = meant(environment, environments, f"the files have {known}")
        raise error
    declared = {*found, *(name for values in environments.values() for name in values)}
    for name in given:
        if name not in declared:
            error = refused(f"there is no variable {name}")
            error.hint = meant(name, declared, f"the files have {', '.join(sorted(declared)) or 'none'}")
            raise error
    return found | (environments[environment] if environment is not None else {}) | dict(given)


def _mapping(part: FilePart, path: list[str | int], value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise part.wrong(path, f"{path[-1]} is not a mapping")
    return value


def _entries(part: FilePart, variables: Mapping[str, Any]) -> Iterable[EntryOfFile]:
    from mainspring.domain.texts import meant
    from mainspring.wire.files import FILE_KINDS

    for kind in FILE_KINDS:
        for name, body in (part.data.get(kind) or {}).items():

            def wrong(path: list[str | int], variable: str, *, at: tuple[str, str] = (kind, name)) -> InvalidInput:
                where = [*at, *path]
                if not variable:
                    return part.wrong(where, "${{ is not closed, or names no variable", "write $${{ for the text ${{")
                if variable in variables:
                    return part.wrong(where, f"the variable {variable} has no value", "give it with --env or --set")
                known = ", ".join(sorted(variables)) or "none"
                return part.wrong(
                    where, f"there is no variable {variable}", meant(variable, variables, f"the files have {known}")
                )

            written = filled(name, variables, wrong)
            yield EntryOfFile(kind, str(written), filled(body, variables, wrong), part, name)


def _check_twice(entries: Sequence[EntryOfFile]) -> None:
    seen: dict[tuple[str, str], EntryOfFile] = {}
    for entry in entries:
        first = seen.setdefault((entry.kind, entry.id), entry)
        if first is not entry:
            raise entry.part.wrong([entry.kind, entry.name], f"{entry.kind}.{entry.id} is also in {first.source}")


def _owner(parts: Sequence[FilePart], variables: Mapping[str, Any]) -> str:
    found = {str(filled_text(part.data["owner"], variables)): part for part in parts if part.data.get("owner")}
    if not found:
        raise parts[0].wrong([], "the files have no owner", parts[0].form("owner: billing", 'owner = "billing"'))
    if len(found) > 1:
        one, other = list(found)[:2]
        raise found[other].wrong(["owner"], f"the owner is {other} here and {one} in {found[one].file}")
    return next(iter(found))
