"""Intake of limits: how many runs of a job, a task or a key at once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from mainspring.domain.errors import InvalidInput
from mainspring.domain.limits import ConcurrencyLimit, NotAKey, slots_of
from mainspring.domain.texts import check_line, shown
from mainspring.wire.limits import ConcurrencyIn

MOST_AT_ONCE = 1_000_000
_MOST_LIMITS = 4
_LONGEST_PATH = 200
_PATH = re.compile(r"(payload|labels)(\.[^.]+)+\Z")
_PATH_HINT = 'write the path of one value, such as "payload.account" or "labels.region"'


def read_concurrency(given: int | ConcurrencyIn | Sequence[ConcurrencyIn]) -> list[ConcurrencyLimit]:
    """The limits of a request. A number is a limit of the job."""
    listed = isinstance(given, Sequence)
    items = list(given) if isinstance(given, Sequence) else [given]
    if not items or len(items) > _MOST_LIMITS:
        raise InvalidInput(
            f"{len(items)} limits are given", field="concurrency", expected=f"1 to {_MOST_LIMITS}",
            hint="null removes the limits of a job" if not items else None,
        )  # fmt: skip
    limits = [
        _limit(
            ConcurrencyIn(item) if isinstance(item, int) else item,
            f"concurrency[{place}]" if listed else "concurrency",
            number=isinstance(item, int),
        )
        for place, item in enumerate(items)
    ]
    names = [(limit.key, limit.per) for limit in limits]
    if len(set(names)) < len(names):
        raise InvalidInput("two limits are about the same", field="concurrency", hint="leave one of them out")
    if len(limits) > 1 and any(limit.strict for limit in limits):
        raise InvalidInput(
            "strict order goes with one limit alone", field="concurrency", hint="leave the other limits out"
        )
    return limits


@lru_cache(maxsize=1000)
def _limit(given: ConcurrencyIn, field: str, *, number: bool) -> ConcurrencyLimit:
    check_count(given.limit, field if number else f"{field}.limit")
    if given.key is not None:
        check_path(given.key, f"{field}.key")
    per = None if given.per is None else given.per.lower()
    if per not in (None, "job", "task"):
        raise InvalidInput(f"{shown(given.per)} is not a scope", field=f"{field}.per", expected="job or task")
    order = None if given.order is None else given.order.lower()
    if order not in (None, "priority", "strict"):
        raise InvalidInput(
            f"{shown(given.order)} is not an order", field=f"{field}.order", expected="priority or strict"
        )
    if order == "strict" and given.limit != 1:
        raise InvalidInput(
            f"strict order does not go with a limit of {given.limit}", field=f"{field}.order",
            expected="a limit of 1", hint="runs that overlap have no order; set the limit to 1 or leave out the order",
        )  # fmt: skip
    return ConcurrencyLimit(given.limit, given.key, per, order == "strict")


def check_count(limit: int, field: str) -> None:
    if not 1 <= limit <= MOST_AT_ONCE:
        hint = "to stop a job, pause it" if limit == 0 else None
        raise InvalidInput(f"{shown(limit)} is not a limit", field=field, expected=f"1 to {MOST_AT_ONCE:,}", hint=hint)


def check_path(path: str, field: str) -> None:
    if len(path) > _LONGEST_PATH or not _PATH.match(path):
        raise InvalidInput(f"{shown(path)} is not a path", field=field, hint=_PATH_HINT)
    check_line(path, field)


def check_keys(limits: list[ConcurrencyLimit], payload: str | None, labels: dict[str, str] | None) -> None:
    """Raise InvalidInput if a key meets an object or a list in this payload."""
    if not any(limit.key for limit in limits):
        return
    try:
        slots_of(limits, task="", job_id="", lasting=True, payload=payload, labels=labels, one_after_another=False)
    except NotAKey as error:
        place = next(place for place, limit in enumerate(limits) if (limit.key or "").startswith(error.path))
        raise InvalidInput(
            f"{error.path} is {error.kind} in this payload, and cannot be the key of a limit",
            field="concurrency.key" if len(limits) == 1 else f"concurrency[{place}].key",
            hint="name a text, a number or a boolean inside it",
        ) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(f"the payload cannot be decoded: {error}", field="payload") from None
