"""Quotas: what an instance administrator allows a tenant. They narrow what the tenant sets itself."""

from __future__ import annotations

import math

import msgspec
from msgspec import UNSET

from mainspring.domain.errors import InvalidInput, OverQuota, QuotaExceeded
from mainspring.domain.rates import parse_rate
from mainspring.wire.quotas import QuotasRequest, QuotaUse

NEAR = 0.8  # of a quota: from here on it warns
_MOST = 1_000_000_000
_MOST_BYTES = 1 << 50


class Quotas(msgspec.Struct, frozen=True):
    """None: as much as the tenant wants."""

    stored_jobs: int | None = None
    submissions_per_second: int | None = None
    runs_per_minute: int | None = None
    queued_runs: int | None = None
    concurrent_runs: int | None = None
    payload_bytes: int | None = None
    log_bytes_per_day: int | None = None
    tokens: int | None = None
    history_days: int | None = None


NO_QUOTAS = Quotas()
NAMES = Quotas.__struct_fields__
# The highest number of each. Rates are those that a bucket can have (domain/rates.py).
HIGHEST = {
    name: {"submissions_per_second": 1_000_000, "runs_per_minute": 60_000_000, "log_bytes_per_day": _MOST_BYTES}.get(
        name, _MOST
    )
    for name in NAMES
}


def changed_quotas(before: Quotas, request: QuotasRequest) -> Quotas:
    """The quotas after a request. Raises InvalidInput that names the field."""
    wanted: dict[str, int | None] = {}
    for name in NAMES:
        value = getattr(request, name)
        if value is UNSET:
            continue
        if value is not None and not 1 <= value <= HIGHEST[name]:
            hint = "null removes the quota"
            if value == 0 and name in ("runs_per_minute", "concurrent_runs"):
                hint = "to let nothing start, pause the tenant instead; null removes the quota"
            raise InvalidInput(f"{value} is out of range", field=name, expected=f"1 to {HIGHEST[name]}", hint=hint)
        wanted[name] = value
    return msgspec.structs.replace(before, **wanted)


def check_history_days(request: QuotasRequest, days_of_all: int) -> None:
    """Raise InvalidInput if the tenant would keep its history for longer than the servers keep any."""
    days = request.history_days
    if days is not UNSET and days is not None and days > days_of_all:
        raise InvalidInput(
            f"history is kept for {days_of_all} days here, so a tenant cannot keep it for {days}",
            field="history_days", expected=f"1 to {days_of_all}",
            hint="start all servers and schedulers with a higher MAINSPRING_HISTORY_DAYS first; null removes the quota",
        )  # fmt: skip


def lower(own: int | None, quota: int | None) -> int | None:
    """The lower of two limits, of which None is none."""
    return own if quota is None else quota if own is None else min(own, quota)


def pace(rate: str | None, burst: int | None, per_minute: int | None) -> tuple[float, int] | None:
    """Seconds per start and burst of a rate under a quota: the slower of both. The burst of a quota is what comes in a
    second."""
    own = None if rate is None or burst is None else (parse_rate(rate, "rate").every, burst)
    if per_minute is None:
        return own
    quota = (60.0 / per_minute, max(1, math.ceil(per_minute / 60)))
    return quota if own is None else (max(own[0], quota[0]), min(own[1], quota[1]))


def use_of(name: str, limit: int | None, used: int | None) -> QuotaUse:
    return QuotaUse(name, limit, used, near=limit is not None and used is not None and used >= NEAR * limit)


def near_in_words(use: QuotaUse) -> str:
    """The warning of a quota that is nearly used up."""
    assert use.limit is not None and use.used is not None
    return f"{use.used:,} of {use.limit:,} are used of the quota {use.quota} ({100 * use.used // use.limit} %)"


def over(name: str, limit: int, used: int, *, more: int = 1, seconds: float | None = None) -> OverQuota:
    """The refusal of a request that can be sent again later."""
    wait = 1 if seconds is None else max(1, math.ceil(seconds))
    error = OverQuota(
        f"the quota {name} of the tenant is {limit:,}, {used:,} are used, and this needs {more:,} more",
        field=name, hint=f"try again after {wait} s; an instance administrator can raise the quota",
    )  # fmt: skip
    error.retry_after, error.limit, error.used = wait, limit, used
    return error


def exceeded(name: str, limit: int, used: int, *, field: str | None = None, hint: str) -> QuotaExceeded:
    """The refusal of a request that waiting does not help."""
    error = QuotaExceeded(
        f"the quota {name} of the tenant is {limit:,}, and {used:,} would be used", field=field or name,
        hint=f"{hint}, or ask an instance administrator to raise the quota",
    )  # fmt: skip
    error.limit, error.used = limit, used
    return error
