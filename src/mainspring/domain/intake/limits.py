"""Intake of limits: how many runs of a job, a task or a key at once."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from mainspring.domain.errors import Conflict, InvalidInput
from mainspring.domain.limits import ConcurrencyLimit, NotAKey, read_name, value_at, values_of
from mainspring.domain.texts import check_line, shown
from mainspring.wire.limits import CircuitBreakerIn, ConcurrencyIn, RateLimitIn

L = TypeVar("L", ConcurrencyIn, RateLimitIn, CircuitBreakerIn)

MOST_AT_ONCE = 1_000_000
_MOST_LIMITS = 4
_LONGEST_PATH = 200
_PATH = re.compile(r"(payload|labels)(\.[^.]+)+\Z")
_PATH_HINT = 'write the path of one value, such as "payload.account" or "labels.region"'


def read_concurrency(given: bool | int | ConcurrencyIn | Sequence[ConcurrencyIn]) -> list[ConcurrencyLimit] | None:
    """The limits of a request. A number is a limit of the job. False: none, whatever its task declares."""
    if given is False:
        return None
    if given is True:
        raise InvalidInput("true is not a limit", field="concurrency", expected="a number, an object, a list or false")
    listed = isinstance(given, Sequence)
    items = list(given) if isinstance(given, Sequence) else [given]
    if not items or len(items) > _MOST_LIMITS:
        raise InvalidInput(
            f"{len(items)} limits are given", field="concurrency", expected=f"1 to {_MOST_LIMITS}",
            hint="false removes the limits of a job" if not items else None,
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
    per = read_per(given.per, f"{field}.per")
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


def read_per(given: str | None, field: str) -> str | None:
    per = None if given is None else given.lower()
    if per not in (None, "job", "task"):
        raise InvalidInput(f"{shown(given)} is not a scope", field=field, expected="job or task")
    return per


def per_task(limits: list[L] | None, given: object, field: str = "concurrency") -> list[L] | None:
    """The limits that a task declares: they count the runs of the task. `given`: as they were written."""
    for place, limit in enumerate(limits or ()):
        if limit.per == "job":
            raise InvalidInput(
                "a limit that a task declares counts the runs of all its jobs",
                field=f"{field}[{place}].per" if isinstance(given, Sequence) else f"{field}.per",
                expected="task", hint="leave per out, or give the limit with the job",
            )  # fmt: skip
    return None if limits is None else [msgspec.structs.replace(limit, per="task") for limit in limits]


def check_count(limit: int, field: str) -> None:
    if not 1 <= limit <= MOST_AT_ONCE:
        hint = "to stop a job, pause it" if limit == 0 else None
        raise InvalidInput(f"{shown(limit)} is not a limit", field=field, expected=f"1 to {MOST_AT_ONCE:,}", hint=hint)


def check_setting(name: str, limit: int | None, order: str | None, *, strict: bool) -> None:
    """Raise unless a person may set the limit with this name to `limit`. None: back to what is declared. `order`:
    priority ends strict order."""
    if order is not None and order.lower() != "priority":
        raise InvalidInput(
            f"{shown(order)} cannot be set", field="order", expected="priority, which ends strict order",
            hint="jobs and tasks declare strict order",
        )  # fmt: skip
    if limit is not None:
        check_count(limit, "limit")
    of = read_name(name)
    if of.what != "concurrency":
        what, field = ("rate", "rate_limit") if of.what == "rate" else ("circuit breaker", "circuit_breaker")
        raise Conflict(
            f"this is the {what} of {of.kind} {of.of!r}, not a number of runs at once", code="not_a_number_of_runs",
            hint=f"change {field} of the job or the task",
        )  # fmt: skip
    if of.kind == "overlap":
        raise Conflict(
            f"the limit belongs to the overlap rule of job {of.of!r}", code="overlap_rule",
            hint=f"change the rule: PATCH /v1/jobs/{of.of}",
        )  # fmt: skip
    if strict and order is None and limit not in (None, 1):
        raise InvalidInput(
            f"strict order does not go with a limit of {limit}", field="limit", expected="1 or null",
            hint='"order": "priority" ends the order',
        )  # fmt: skip


def strict_order(names: Collection[str]) -> Conflict:
    """The error for a job that declares limits in strict order without it."""
    name = min(names)
    return Conflict(
        f"the limit {name} is in strict order, and this job declares it without it", code="strict_order",
        field="concurrency.order",
        hint=f'give "order": "strict"; to end the order: mainspring limit set {name} --order priority',
    )  # fmt: skip


def check_path(path: str, field: str) -> None:
    if len(path) > _LONGEST_PATH or not _PATH.match(path):
        raise InvalidInput(f"{shown(path)} is not a path", field=field, hint=_PATH_HINT)
    check_line(path, field)


def check_keys(
    keys: Sequence[str | None], payload: str | None, labels: dict[str, str] | None, field: str = "concurrency"
) -> None:
    """Raise InvalidInput if a key meets an object or a list in this payload."""
    values: dict[str, Any] | None = None
    for place, key in enumerate(keys):
        if key is None:
            continue
        try:
            if values is None:
                values = values_of(payload, labels)
            value_at(values, key)
        except NotAKey as error:
            where = "inside it" if error.kind == "an object" else "outside of lists"
            raise InvalidInput(
                f"{error.path} is {error.kind} in this payload, and cannot be the key of a limit",
                field=f"{field}.key" if len(keys) == 1 else f"{field}[{place}].key",
                hint=f"name a text, a number or a boolean {where}",
            ) from None
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidInput(f"the payload cannot be decoded: {error}", field="payload") from None
