"""Named SQL: `-- name: x` starts a query in sql/*.sql; the comment lines after it say why, and what guards it.

`{{NAME}}` in a query is a constant: the numbers of states come from domain/transitions.py, never from memory.
`{{name}}` is a fragment of sql/fragments.sql, where `-- fragment: name` starts one. Fragments may hold constants and
other fragments.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files

from mainspring.domain.transitions import StoredJobStatus, StoredState
from mainspring.domain.worker_state import WorkerState
from mainspring.kernel.ids import DEFAULT_TENANT, EVERY_TENANT

_HEADING = re.compile(r"^-- (name|fragment): (\w+)\s*$")
_INSERT = re.compile(r"\{\{(\w+)\}\}")

CONSTANTS: dict[str, str] = {
    **{state.name: str(int(state)) for state in StoredState},
    **{f"JOB_{status.name}": str(int(status)) for status in StoredJobStatus},
    **{f"WORKER_{state.name}": str(int(state)) for state in WorkerState},
    "WORKERS_ALIVE": f"{WorkerState.LIVE:d}, {WorkerState.DRAINING:d}",
    "WORKERS_ENDED": f"{WorkerState.LOST:d}, {WorkerState.STOPPED:d}",
    "DEFAULT_TENANT": str(DEFAULT_TENANT),
    "EVERY_TENANT": str(EVERY_TENANT),
}


@lru_cache(maxsize=32)
def load(file: str) -> dict[str, str]:
    """All queries of sql/<file>.sql by name, with constants and fragments filled in."""
    return {name: render(text) for name, text in _read(file, "name").items()}


def render(text: str) -> str:
    """SQL with constants and fragments filled in; a name that is unknown is an error."""
    return _INSERT.sub(lambda found: _value(found.group(1)), text)


def _value(name: str) -> str:
    if name in CONSTANTS:
        return CONSTANTS[name]
    fragments = _fragments()
    if name not in fragments:
        raise ValueError(f"{{{{{name}}}}} is neither a constant nor a fragment of sql/fragments.sql")
    return render(fragments[name])


@lru_cache(maxsize=1)
def _fragments() -> dict[str, str]:
    return _read("fragments", "fragment")


def _read(file: str, kind: str) -> dict[str, str]:
    text = (files("mainspring.store") / "sql" / f"{file}.sql").read_text(encoding="utf-8")
    parts: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in text.splitlines():
        if (found := _HEADING.match(line)) and found.group(1) == kind:
            name = found.group(2)
            if name in parts:
                raise ValueError(f"{file}.sql has two parts called {name}")
            current = parts.setdefault(name, [])
        elif current is not None and not line.startswith("--"):
            current.append(line)
    return {name: "\n".join(lines).strip().rstrip(";") for name, lines in parts.items()}
