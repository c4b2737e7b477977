"""A look back over an hour to thirty days, from rollups and samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from mainspring.domain.rollups import WINDOWS, Histogram, Span, Window, floor_to
from mainspring.kernel.ids import TenantId
from mainspring.store import gauges, rollups
from mainspring.store.gauges import Gauge
from mainspring.store.pool import Connection
from mainspring.store.rollups import Rollup
from mainspring.wire.insights import Series, Totals, WindowView, WindowWord

_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)
_SAMPLED = ("waiting", "held", "running", "slots", "backlog")
_SHARES = (0.5, 0.99)
COUNTS = ("succeeded", "failed", "cancelled", "skipped", "retried", "lost", "missed")


class Sum:
    """Rollups added up."""

    __slots__ = ("counts", "lag", "ran", "ran_us")

    def __init__(self) -> None:
        self.counts = dict.fromkeys(COUNTS, 0)
        self.ran_us = 0
        self.lag = Histogram()
        self.ran = Histogram()

    def add(self, rollup: Rollup) -> None:
        for name in COUNTS:
            self.counts[name] += getattr(rollup, name)
        self.ran_us += rollup.ran_us
        self.lag.add(rollup.lag_first, rollup.lag)
        self.ran.add(rollup.ran_first, rollup.ran)

    def add_all(self, other: Sum) -> None:
        for name, count in other.counts.items():
            self.counts[name] += count
        self.ran_us += other.ran_us
        self.lag.add_all(other.lag)
        self.ran.add_all(other.ran)

    def totals(self, length: timedelta) -> Totals:
        counts = self.counts
        ended = sum(counts[name] for name in ("succeeded", "failed", "cancelled", "skipped"))
        judged = counts["succeeded"] + counts["failed"]
        lags, durations = self.lag.percentiles(*_SHARES), self.ran.percentiles(*_SHARES)
        return Totals(
            ended=ended, **counts, per_second=round(ended / length.total_seconds(), 3),
            success_rate=round(counts["succeeded"] / judged, 5) if judged else None,
            lag_p50=lags[0], lag_p99=lags[1], duration_p50=durations[0], duration_p99=durations[1],
            duration_sum=round(self.ran_us / 1e6, 3),
        )  # fmt: skip


class WindowSteps:
    """The steps of a window that ends now; the last one is not over."""

    def __init__(self, window: Window, now: datetime) -> None:
        self.window = window
        self.first = floor_to(now, window.step) - window.length + window.step
        self.at = [self.first + n * window.step for n in range(int(window.length / window.step))]

    def index(self, moment: datetime) -> int | None:
        """The step in which a moment lies. None before the window."""
        number = int((moment - self.first) // self.window.step)
        return min(number, len(self.at) - 1) if number >= 0 else None


async def read_window(
    connection: Connection, tenant: TenantId, w: WindowWord, now: datetime, task: str | None, queue: str | None
) -> WindowView:
    window = WINDOWS[w]
    steps, until = WindowSteps(window, now), await rollups.watermark(connection)
    only_hours = window.length > 12 * _HOUR and window.span is Span.MINUTE  # minutes are not kept for so long
    before = steps.first if only_hours else steps.first - window.length
    rows = await read_rollups(connection, tenant, window.span, before, until, task, queue)
    earlier = [row for row in rows if row.at < steps.first]
    if only_hours:
        start = floor_to(steps.first, _HOUR)
        hours = await rollups.series(connection, tenant, Span.HOUR, start - window.length, task, queue)
        earlier = [row for row in hours if row.at < start]
    sampled = await gauges.series(connection, tenant, window.span, steps.first, queue) if task is None else []
    total, sums = Sum(), [Sum() for _ in steps.at]
    for row in rows:
        if (index := steps.index(row.at)) is not None:
            sums[index].add(row)
    for each in sums:
        total.add_all(each)
    previous = Sum()
    for row in earlier:
        previous.add(row)
    return WindowView(
        w=w, from_=steps.first, to=now, step_s=int(window.step.total_seconds()), complete_until=until,
        totals=total.totals(window.length), previous=previous.totals(window.length),
        series=_series(steps, sums, sampled),
    )  # fmt: skip


async def read_rollups(
    connection: Connection, tenant: TenantId, span: Span, since: datetime, until: datetime | None, task: str | None,
    queue: str | None,
) -> list[Rollup]:  # fmt: skip
    """The rollups from a time on. The minute that is not over is not in its hour yet, so it is read as well."""
    rows = await rollups.series(connection, tenant, span, since, task, queue)
    if span is not Span.MINUTE and until is not None:
        rows += await rollups.series(connection, tenant, Span.MINUTE, floor_to(until, _MINUTE), task, queue)
    return rows


def _series(steps: WindowSteps, sums: Sequence[Sum], sampled: Iterable[Gauge]) -> Series:
    largest: dict[str, list[int | None]] = {name: [None] * len(steps.at) for name in _SAMPLED}
    for gauge in sampled:
        if (index := steps.index(gauge.at)) is not None:
            for name, values in largest.items():
                values[index] = max(getattr(gauge, name), values[index] or 0)
    lags = [each.lag.percentiles(*_SHARES) for each in sums]
    durations = [each.ran.percentiles(*_SHARES) for each in sums]
    counted: dict[str, Any] = {name: [each.counts[name] for each in sums] for name in COUNTS}
    return Series(
        at=steps.at,
        **counted,
        lag_p50=[p50 for p50, _ in lags],
        lag_p99=[p99 for _, p99 in lags],
        duration_p50=[p50 for p50, _ in durations],
        duration_p99=[p99 for _, p99 in durations],
        waiting=largest["waiting"],
        held=largest["held"],
        running=largest["running"],
        slots=largest["slots"],
        backlog=largest["backlog"],
    )
