"""Limits: which lines a run stands in, and what it may own.

A limit has a name, which says what it limits, and a line for each of its keys. A run with limits needs a slot in each
of its lines. Until it has all of them it is HELD. It owns its slots while it is QUEUED or RUNNING."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from mainspring.kernel.ids import TenantId

SHOWN_KEY = 200  # characters of a key that are stored; of a longer one, its hash

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class ConcurrencyLimit(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a job declares: at most `limit` runs at once."""

    limit: int
    key: str | None = None
    per: str | None = None
    strict: bool = False


class Slot(msgspec.Struct, frozen=True, omit_defaults=True):
    """A place that a run needs: the limit, the line, and what the job declares about the limit."""

    name: str
    key: str = ""
    slots: int | None = None
    strict: bool = False


def key_id(tenant: TenantId | int, slot: Slot) -> int:
    """The id of a line. The fragment line_ids in store/sql/fragments.sql computes the same. Ids of lines are never
    small positive numbers: these are gates."""
    digest = hashlib.md5(f"{tenant}\n{slot.name}\n{slot.key}".encode(), usedforsecurity=False).digest()
    number = int.from_bytes(digest[:8], "big", signed=True)
    return number if not 0 <= number < 1 << 32 else number - (1 << 32)


def is_gate(some_id: int) -> bool:
    """Whether an id among those that a run held is a gate, not a line."""
    return 0 < some_id < 1 << 31


def slots_of(
    limits: list[ConcurrencyLimit],
    *,
    task: str,
    job_id: str,
    lasting: bool,
    payload: str | None,
    labels: dict[str, str] | None,
    one_after_another: bool,
) -> list[Slot]:
    """The slots that a run of such a job needs. `lasting`: the job recurs, or its id was chosen. `one_after_another`:
    the overlap rule lets one run of the job live at a time."""
    found: list[Slot] = []
    values: dict[str, Any] | None = None
    for limit in limits:
        path = limit.key
        if path is None:
            per = limit.per or ("job" if lasting else "task")
            found.append(Slot(f"job:{job_id}" if per == "job" else f"task:{task}", "", limit.limit, limit.strict))
            continue
        if values is None:
            values = {"payload": None if payload is None else _decode(payload), "labels": labels}
        name = f"job:{job_id}:{path}" if limit.per == "job" else f"task:{task}:{path}"
        found.append(Slot(name, key_text(value_at(values, path)), limit.limit, limit.strict))
    if one_after_another:
        found.append(overlap_slot(job_id, strict=not found))
    return found


def overlap_slot(job_id: str, *, strict: bool = True) -> Slot:
    """The slot of a job whose runs go one after another."""
    return Slot(f"overlap:{job_id}", "", 1, strict)


class NotAKey(ValueError):
    """The value is an object or a list. `path`: where it is."""

    def __init__(self, path: str, kind: str) -> None:
        super().__init__(f"{path} is {kind}")
        self.path = path
        self.kind = kind


def value_at(values: Any, path: str) -> Any:
    """The value at a path such as payload.account.id; None if there is none. Raises NotAKey if there is an object or a
    list."""
    here = values
    parts = path.split(".")
    for place, part in enumerate(parts):
        if type(here) is dict:
            here = here.get(part)
        elif type(here) is list:
            raise NotAKey(".".join(parts[:place]), "a list")
        else:
            return None
    if type(here) is dict or type(here) is list:
        raise NotAKey(path, "an object" if type(here) is dict else "a list")
    return here


def key_text(value: Any) -> str:
    """The line of a value. 7, "7" and null are three lines; 7 and 7.0 are one."""
    if type(value) is int:
        text = str(value)
    elif type(value) is float and value.is_integer() and abs(value) < 1 << 53:
        text = str(int(value))
    else:
        text = _encode(value).decode()
    if len(text) <= SHOWN_KEY:
        return text
    return f"{text[: SHOWN_KEY - 66]} {hashlib.sha256(text.encode()).hexdigest()}"
