"""Limits: which lines a run stands in, and what it may own.

A limit has a name, which says what it limits, and a line for each of its keys. A run with limits needs a slot in each
of its lines. Until it has all of them it is HELD. It owns its slots while it is QUEUED or RUNNING."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from mainspring.kernel.ids import TenantId

SHOWN_KEY = 200  # characters of a key that are stored; a longer key is stored as its hash

_LONGEST_INT = 10**18

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class ConcurrencyLimit(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a job declares: at most `limit` runs at once."""

    limit: int
    key: str | None = None
    per: str | None = None
    strict: bool = False


class RateLimit(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a job declares: at most `rate` starts. every: seconds per start."""

    rate: str
    every: float
    burst: int
    key: str | None = None
    per: str | None = None


class CircuitBreaker(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a job declares: so many failures in a row open it for so many seconds."""

    failures: int
    open_for: float
    per: str | None = None


# What a slot says about its limit: slots, strict, every, burst, failures, open_for.
Declared = tuple[int | None, bool, float | None, int | None, int | None, float | None]


class Slot(msgspec.Struct, frozen=True, omit_defaults=True):
    """A place that a run needs: the limit, the line, and what the job declares about the limit. `every` and `burst`
    belong to a rate, `failures` and `open_for` to a circuit breaker."""

    name: str
    key: str = ""
    slots: int | None = None
    strict: bool = False
    every: float | None = None
    burst: int | None = None
    failures: int | None = None
    open_for: float | None = None

    @property
    def once(self) -> bool:
        """Whether an attempt uses the slot up. If so, the next attempt of the run needs it again."""
        return self.every is not None or self.failures is not None

    @property
    def declared(self) -> Declared:
        return self.slots, self.strict, self.every, self.burst, self.failures, self.open_for

    @property
    def of_job(self) -> bool:
        """Whether it belongs to one job, not to all jobs of a task."""
        return not self.name.startswith(("task:", "rate:task:", "breaker:task:"))


def key_id(tenant: TenantId | int, slot: Slot) -> int:
    """The id of a line. The fragment line_ids in store/sql/fragments.sql computes the same. Ids of lines are never
    small positive numbers: these are gates."""
    return _line_id(tenant, slot.name, slot.key)


@lru_cache(maxsize=10_000)
def _line_id(tenant: int, name: str, key: str) -> int:
    digest = hashlib.md5(f"{tenant}\n{name}\n{key}".encode(), usedforsecurity=False).digest()
    number = int.from_bytes(digest[:8], "big", signed=True)
    return number if not 0 <= number < 1 << 32 else number - (1 << 32)


def is_gate(some_id: int) -> bool:
    """Whether an id among those that a run held is a gate, not a line."""
    return 0 < some_id < 1 << 31


def slots_of(
    limits: Sequence[ConcurrencyLimit] = (),
    rates: Sequence[RateLimit] = (),
    breaker: CircuitBreaker | None = None,
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
    both: Sequence[ConcurrencyLimit | RateLimit] = [*limits, *rates]
    for limit in both:
        path = limit.key
        of_job = (limit.per or ("job" if lasting and path is None else "task")) == "job"
        name = f"job:{job_id}" if of_job else f"task:{_escaped(task)}"
        key = ""
        if path is not None:
            if values is None:
                values = values_of(payload, labels)
            name, key = f"{name}:{path}", key_text(value_at(values, path))
        if type(limit) is RateLimit:
            found.append(Slot(f"rate:{name}", key, every=limit.every, burst=limit.burst))
        elif type(limit) is ConcurrencyLimit:
            found.append(Slot(name, key, limit.limit, limit.strict))
    if breaker is not None:
        of_job = (breaker.per or ("job" if lasting else "task")) == "job"
        name = f"job:{job_id}" if of_job else f"task:{_escaped(task)}"
        found.append(Slot(f"breaker:{name}", failures=breaker.failures, open_for=breaker.open_for))
    if one_after_another:
        found.append(overlap_slot(job_id, strict=not found))
    return found


def overlap_slot(job_id: str, *, strict: bool = True) -> Slot:
    """The slot of a job whose runs go one after another."""
    return Slot(f"overlap:{job_id}", "", 1, strict)


def values_of(payload: str | None, labels: dict[str, str] | None) -> dict[str, Any]:
    """The values from which keys are read."""
    return {"payload": None if payload is None else _decode(payload), "labels": labels}


@lru_cache(maxsize=1000)
def _escaped(task: str) -> str:
    """Escape colons in the name of a task, so that they differ from the colon before the key."""
    return task.replace("%", "%25").replace(":", "%3A")


class LimitName(msgspec.Struct, frozen=True):
    """What the name of a limit says. kind: job, task or overlap. of: the id of the job, or the name of the task. what:
    what is limited: concurrency, rate, or breaker."""

    kind: str
    of: str
    key: str | None = None
    what: str = "concurrency"

    def in_words(self, key: str) -> str:
        """Such as: task charge, payload.account "a1"."""
        return f"{self.kind} {self.of}" + ("" if self.key is None else f", {self.key} {key}")


def read_name(name: str) -> LimitName:
    what, _, scope = name.partition(":")
    if what not in ("rate", "breaker"):
        what, scope = "concurrency", name
    kind, _, rest = scope.partition(":")
    of, found, key = rest.partition(":")
    return LimitName(kind, of.replace("%3A", ":").replace("%25", "%"), key if found else None, what)


class NotAKey(ValueError):
    """The value is an object or a list. `path`: where it is."""

    def __init__(self, path: str, kind: str) -> None:
        super().__init__(f"{path} is {kind}")
        self.path = path
        self.kind = kind


def value_at(values: Any, path: str) -> Any:
    """The value at a path such as payload.account.id; None if there is none. What follows `labels.` is the name of a
    label. Raises NotAKey if there is an object or a list."""
    parts = _parts(path)
    if parts[0] == "labels":
        return (values["labels"] or {}).get(path.removeprefix("labels."))
    here = values
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


@lru_cache(maxsize=1000)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(path.split("."))


def key_text(value: Any) -> str:
    """The line of a value. 7, "7" and null are three lines; 7 and 7.0 are one."""
    if type(value) is int and -_LONGEST_INT < value < _LONGEST_INT:
        return str(value)
    if type(value) is int:
        text = str(value)
    elif type(value) is float and value.is_integer() and abs(value) < 1 << 53:
        text = str(int(value))
    else:
        text = _encode(value).decode()
    if len(text) <= SHOWN_KEY:
        return text
    return f"{text[: SHOWN_KEY - 66]} {hashlib.sha256(text.encode()).hexdigest()}"
