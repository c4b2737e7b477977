"""Conditions: rules that compare a figure of a window of time with a bound."""

from __future__ import annotations

from datetime import timedelta

from mainspring.domain.notify.rules import BOUNDS, OF_INSTALLATION, NotifyRule
from mainspring.domain.quotas import near_in_words
from mainspring.domain.rollups import Histogram, Span
from mainspring.kernel.ids import TenantId
from mainspring.operations.limits.quota_use import quota_uses
from mainspring.operations.read import findings
from mainspring.store import conditions, rollups
from mainspring.store.pool import Connection
from mainspring.wire.rules import CONDITIONS

_LEAST_RUNS = 20  # a rate of fewer runs says nothing
_MOST_COUNTED = 1_000_000
# Where people look.
PAGES = {
    "queue_behind": "/ui/queues", "no_worker": "/ui/queues", "quota_near": "/ui/access",
    "pause_forgotten": "/ui/jobs?status=PAUSED", "never_ran": "/ui/jobs?health=never_ran",
    "always_fails": "/ui/jobs?health=failing",
}  # fmt: skip


def condition_of(rule: NotifyRule) -> str | None:
    """The condition of the rule. It has one at most."""
    return next((event for event in rule.on if event in CONDITIONS), None)


def subject_of(rule: NotifyRule) -> str:
    if condition_of(rule) in OF_INSTALLATION:
        return "the installation"
    parts = [f"{name} {value}" for name, value in (("task", rule.task), ("queue", rule.queue)) if value is not None]
    return " in ".join(parts) or "the tenant"


async def why_it_holds(connection: Connection, tenant: TenantId, rule: NotifyRule, condition: str) -> str | None:
    """Why the condition holds, in words. None if it does not."""
    bound = BOUNDS[condition]
    over = bound.over if rule.over is None else rule.over
    above = bound.above if rule.above is None else rule.above
    below = bound.below if rule.below is None else rule.below
    scope = (tenant, rule.task, rule.queue)
    if condition in ("success_rate_below", "retries_above"):
        found = await conditions.rates(connection, *scope, over)
        ended = found.succeeded + found.failed
        if ended < _LEAST_RUNS:
            return None
        if condition == "success_rate_below" and below is not None:
            rate = 100 * found.succeeded / ended
            return f"{rate:.1f} % of {ended:,} runs succeeded, fewer than {below:g} %" if rate < below else None
        rate = 100 * found.retried / (ended + found.retried)
        too_many = above is not None and rate > above
        return f"{rate:.1f} % of the attempts were retried, more than {above:g} %" if too_many else None
    if condition == "dead_letters_above":
        most = int(above or 0)
        count = await conditions.dead_letters(connection, *scope, min(most + 1, _MOST_COUNTED))
        return f"there are more than {most:,} dead letters" if count > most else None
    if condition == "quota_near":
        near = [use for use in await quota_uses(connection, tenant) if use.near]
        return "; ".join(map(near_in_words, near)) or None
    if condition == "lag_above":
        return await _lag(connection, *scope, over, above or 0.0)
    if condition in ("pause_forgotten", "never_ran"):
        read = findings.forgotten_pauses if condition == "pause_forgotten" else findings.never_ran
        return await read(connection, *scope, over)
    if condition == "always_fails":
        return await findings.always_fails(connection, *scope, int(above or 0) + 1)
    if condition == "clocks_differ":
        return await findings.clocks_differ(connection, above or 0.0)
    if condition == "database_near_limit":
        return await findings.database_near_limit(connection, above or 0.0)
    oldest = await conditions.oldest_ready(connection, *scope, without_worker=condition == "no_worker")
    least = over if condition == "no_worker" else above or 0.0
    if oldest is None or oldest.seconds <= least:
        return None
    where = f"a run of task {oldest.task} in queue {oldest.queue}"
    if condition == "no_worker":
        return f"{where} has waited for {oldest.seconds:,.0f} s, and no worker takes it"
    return f"{where} has waited for {oldest.seconds:,.0f} s"


async def _lag(
    connection: Connection, tenant: TenantId, task: str | None, queue: str | None, over: float, above: float
) -> str | None:
    """The 99th percentile of what started first in the window, from the rollups."""
    now, _ = await rollups.horizon(connection)
    found = Histogram()
    for row in await rollups.series(connection, tenant, Span.MINUTE, now - timedelta(seconds=over), task, queue):
        found.add(row.lag_first, row.lag)
    [late] = found.percentiles(0.99)
    if found.total < _LEAST_RUNS or late is None or late <= above:
        return None
    return f"1 of 100 runs started {late:g} s late or more, of {found.total:,}; the bound is {above:g} s"
