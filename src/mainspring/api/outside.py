"""What answers about jobs and runs inside the reach of a narrowed token say of those outside: ids of jobs that they
depend on, and reasons with the names of such jobs, or with counts of the whole tenant.

The reasons are made general, whatever they name. Ids that the token does not reach are masked. Views are shared between
requests, so what is changed is a copy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from enum import Enum
from functools import cache
from typing import Any

import msgspec

from mainspring.api.struct_types import types_in
from mainspring.domain.errors import InvalidBatch, MainspringError
from mainspring.domain.secret_names import MASK
from mainspring.operations.read.why import FOR_OTHERS, HELD_BY_A_LIMIT
from mainspring.wire.states import RunState

_ERRORS = frozenset({"error_message", "error"})
_IDS = frozenset({"depends_on", "after", "does_not_wait_for"})
_SCHEDULES = frozenset({"schedule", "schedule_in_words"})
_AFTER = ("after ", "After ")  # and then ids, in the words of a schedule
_BLOCKED = "upstream failed"  # and then the job that failed
_CYCLE = "the jobs wait for each other in a cycle"
_QUOTA = "quota "  # and then its name, its number, and how much of it is used

Outside = Callable[[Iterable[str]], Awaitable[set[str]]]  # those of the ids that the token does not reach


class _Part(Enum):
    REASON = "reason"
    ERROR = "error of a run, whatever it waits for now"
    IDS = "ids of jobs"
    SCHEDULE = "a schedule in words"
    STRUCTS = "structs that have such parts"


async def without_outside(content: Any, outside: Outside) -> Any:
    """A struct, or a list of structs, that names nothing outside."""
    named = set(_ids_in(content))
    return _changed(content, await outside(named) if named else set())


def general(reason: str, state: str | None) -> str:
    """A reason without names of other jobs and runs, and without counts."""
    if reason.startswith(_BLOCKED):
        return _BLOCKED
    if state == RunState.HELD:
        return reason.partition(" (")[0] if reason.startswith(_QUOTA) else HELD_BY_A_LIMIT
    if state == RunState.WAITING and reason.startswith(("waiting for ", "for ")):
        return FOR_OTHERS if reason.startswith("w") else FOR_OTHERS.removeprefix("waiting ")
    return reason


def hide_names(error: MainspringError) -> None:
    """Take the names of jobs out of the refusal of a cycle, which may lead through jobs outside."""
    if error.code == "cycle":
        error.detail = _CYCLE
    elif isinstance(error, InvalidBatch) and any(one.code == "cycle" for one in error.errors):
        for one in error.errors:
            one.detail = _CYCLE if one.code == "cycle" else one.detail
        error.detail = "the batch has problems and none of it was stored"


def _ids_in(content: Any) -> Iterator[str]:
    if isinstance(content, list):
        for one in content:
            yield from _ids_in(one)
    elif isinstance(content, msgspec.Struct):
        for name, part in _parts_of(type(content)):
            if part is _Part.IDS:
                yield from getattr(content, name) or ()
            elif part is _Part.STRUCTS:
                yield from _ids_in(getattr(content, name))


def _changed(content: Any, outside: set[str]) -> Any:
    if isinstance(content, list):
        return [_changed(one, outside) for one in content]
    if not isinstance(content, msgspec.Struct):
        return content
    state = getattr(content, "status", None) or getattr(content, "state", None)
    changed: dict[str, Any] = {}
    for name, part in _parts_of(type(content)):
        if not (value := getattr(content, name)):
            continue
        if part is _Part.REASON:
            changed[name] = general(value, state) if isinstance(value, str) else value
        elif part is _Part.ERROR:
            changed[name] = general(value, None) if isinstance(value, str) else value
        elif part is _Part.SCHEDULE:
            changed[name] = _masked_words(value, outside) if str(value).startswith(_AFTER) else value
        elif part is _Part.IDS:
            changed[name] = [MASK if one in outside else one for one in value]
        else:
            changed[name] = _changed(value, outside)
    return msgspec.structs.replace(content, **changed) if changed else content


def _masked_words(words: str, outside: set[str]) -> str:
    for job_id in sorted(outside, key=len, reverse=True):
        words = words.replace(job_id, MASK)
    return words


@cache
def _parts_of(struct: type[msgspec.Struct]) -> tuple[tuple[str, _Part], ...]:
    return tuple(_parts(struct, frozenset()))


def _parts(struct: type[msgspec.Struct], above: frozenset[type]) -> list[tuple[str, _Part]]:
    found = []
    for field in msgspec.structs.fields(struct):
        structs = [one for one in types_in(field.type) if isinstance(one, type) and issubclass(one, msgspec.Struct)]
        if field.name == "reason":
            found.append((field.name, _Part.REASON))
        elif field.name in _ERRORS:
            found.append((field.name, _Part.ERROR))
        elif field.name in _IDS:
            found.append((field.name, _Part.IDS))
        elif field.name in _SCHEDULES and not structs:
            found.append((field.name, _Part.SCHEDULE))
        elif any(_parts(one, above | {struct}) for one in structs if one not in above):
            found.append((field.name, _Part.STRUCTS))
    return found
