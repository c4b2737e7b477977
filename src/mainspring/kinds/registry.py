"""The registry of the kinds of task: which kinds this installation has, and how a part of one is imported.

A kind is a package with the attribute `KIND`, and with these modules. Servers, workers and the command line import only
those that they need:

- `call.py`: `CALL_IN`, the type of its field in a request; `CALL`, the type that is stored, shown and sent to workers;
  and `in_words(call)`, a line for people. `NESTED` has the structs inside of the call by their field. It imports
  nothing above `wire`.
- `checks.py`: `CHECKS`, a `KindChecks` (domain/intake/kind_checks.py).
- `options.py`: `OPTIONS`, the options of the kind on the command line. It imports only the standard library.
- `executor.py`: `build(setting)`, which returns an `Executor`, or None if the worker does not offer the kind.

The kinds of other packages are found by the entry point group `mainspring.task_kinds`. Its value is the `KIND`.

This module imports only the standard library, because `mainspring submit --help` imports it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as member
from importlib import import_module
from typing import Any

GROUP = "mainspring.task_kinds"
_BUILT_IN = ("mainspring.kinds.shell", "mainspring.kinds.http", "mainspring.kinds.sql")
_MOST_LEARNED = 1000
_NAME = re.compile(r"[a-z][a-z0-9_]{0,49}\Z")


@dataclass(frozen=True, slots=True)
class TaskKind:
    """One kind of task.

    name: the task of its jobs. field: of a request, which describes what a job runs; the name of the kind unless that
    is given. stored: the path in a definition where the call is stored. in_sql: `mainspring.submit` takes the field.
    prepares: it has a module `prepare.py` with `prepare(requests)`, a coroutine that makes slow checks in a thread.
    keyword: the type of the field in Python code. requires: what a worker needs beside Mainspring, as pip names it.
    folder: the package of the kind. package: the distribution that has it, if it is not Mainspring.
    """

    name: str
    folder: str
    field: str = ""
    stored: str = ""
    in_sql: bool = False
    prepares: bool = False
    keyword: str = "Mapping[str, Any]"
    requires: str | None = None
    package: str | None = None
    in_setup: bool = member(init=False)
    """Whether the call is stored in the setup of a run, under the name of the field."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "field", self.field or self.name)
        object.__setattr__(self, "stored", self.stored or f"spec.setup.{self.field}")
        object.__setattr__(self, "in_setup", self.stored == f"spec.setup.{self.field}")

    def part(self, name: str) -> Any:
        """Import a module of the kind."""
        return import_module(f"{self.folder}.{name}")


@dataclass(frozen=True, slots=True)
class Option:
    """One option of the command line. The first one of a kind carries the name of its field. repeated: its value is a
    list. switch: it has no value."""

    name: str
    flag: str
    metavar: str
    help: str
    repeated: bool = False
    switch: bool = False
    panel: str | None = None


@dataclass(frozen=True, slots=True)
class KindOptions:
    """The options of a kind.

    of_a_job: of `mainspring submit` and `mainspring job edit`. call: makes the field of the request from their values;
    None if none is given. of_a_worker: of `mainspring worker` and `mainspring up`. check_worker: checks their values
    before the worker starts, and returns the files that commands must not read.
    """

    of_a_job: tuple[Option, ...] = ()
    call: Callable[[Mapping[str, Any]], Any] | None = None
    of_a_worker: tuple[Option, ...] = ()
    check_worker: Callable[[Mapping[str, Any]], list[Any]] | None = None


@dataclass
class _Found:
    kinds: tuple[TaskKind, ...] | None = None
    problems: list[str] = member(default_factory=list)
    elsewhere: dict[str, str] = member(default_factory=dict)


_found = _Found()


def task_kinds() -> tuple[TaskKind, ...]:
    """The kinds of this installation: our own first, then those of other packages by name."""
    if _found.kinds is None:
        own = tuple(import_module(folder).KIND for folder in _BUILT_IN)
        _found.kinds = own + tuple(_of_others({kind.name for kind in own} | {kind.field for kind in own}))
    return _found.kinds


def kind_of_task(task: str) -> TaskKind | None:
    """The kind whose jobs have this task. None: it is a task of an application."""
    for kind in task_kinds():
        if kind.name == task:
            return kind
    return None


def refuse_kinds(taken: frozenset[str]) -> None:
    """Leave out kinds of other packages whose field has the name of another field."""
    kinds = task_kinds()
    wrong = [kind for kind in kinds if kind.field in taken and kind.folder not in _BUILT_IN]
    for kind in wrong:
        _found.problems.append(f"the kind of task {kind.name} ({kind.folder}) has the name of a field of jobs")
    _found.kinds = tuple(kind for kind in kinds if kind not in wrong)


def problems_of_kinds() -> list[str]:
    """Why kinds of installed packages cannot be used."""
    task_kinds()
    return list(_found.problems)


def learn_package(name: str, package: str) -> None:
    """Remember which package has a kind that this server does not know. Workers that offer it say so."""
    if len(_found.elsewhere) < _MOST_LEARNED:
        _found.elsewhere[name] = package


def package_of(name: str) -> str | None:
    """The package of a kind that is not installed here. None if that is not known."""
    return None if kind_of_task(name) is not None else _found.elsewhere.get(name)


def _of_others(taken: set[str]) -> Iterator[TaskKind]:
    if not _is_declared():
        return
    from importlib.metadata import entry_points  # 20 ms to import, for those who have such a package

    for entry in sorted(entry_points(group=GROUP), key=lambda one: one.name):
        try:
            kind = entry.load()
        except Exception as error:  # noqa: BLE001 - code of others; a server must start without it
            _found.problems.append(f"the kind of task {entry.name} ({entry.value}) cannot be imported: {error}")
            continue
        if not isinstance(kind, TaskKind) or not _NAME.match(kind.name) or kind.field != kind.name:
            _found.problems.append(f"the kind of task {entry.name} ({entry.value}) is not a TaskKind with a plain name")
        elif not kind.in_setup or kind.name in taken:
            _found.problems.append(f"the kind of task {entry.name} ({entry.value}) has the name of another one")
        else:
            taken.add(kind.name)
            yield replace(kind, package=entry.value if entry.dist is None else entry.dist.name)


def _is_declared() -> bool:
    """Whether an installed package has kinds. Reading the metadata with importlib.metadata takes ten times as long."""
    mark = f"[{GROUP}]".encode()
    for folder in sys.path:
        try:
            with os.scandir(folder or ".") as found:
                names = [entry.name for entry in found if entry.name.endswith((".dist-info", ".egg-info"))]
        except OSError:  # an archive, or nothing
            continue
        for name in names:
            try:
                with open(os.path.join(folder or ".", name, "entry_points.txt"), "rb") as file:  # noqa: PTH118, PTH123
                    if mark in file.read():
                        return True
            except OSError:
                continue
    return False
