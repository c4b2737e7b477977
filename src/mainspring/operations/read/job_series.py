"""What became of the runs of a job: the newest ones as bars, and outcomes, lags and durations over time.

They are read from the newest runs of the job. A rollup for each job would be a row for each run of most jobs."""

from __future__ import annotations

from mainspring.domain.rollups import WINDOWS
from mainspring.domain.transitions import StoredState
from mainspring.kernel.clock import DatabaseClock
from mainspring.operations.access.caller import Caller
from mainspring.operations.paging.search import searching
from mainspring.operations.read.failures import ends_of_job
from mainspring.operations.read.windows import Sum, WindowSteps
from mainspring.store.pool import Store
from mainspring.store.rollups import RunEnd
from mainspring.wire.insights import JobSeries, RunBar, WindowWord

_BARS = 100
_COUNTED = {
    StoredState.SUCCESS: "succeeded",
    StoredState.FAILED: "failed",
    StoredState.CANCELLED: "cancelled",
    StoredState.SKIPPED: "skipped",
}


class JobSeriesReader:
    def __init__(self, store: Store, clock: DatabaseClock) -> None:
        self._store = store
        self._clock = clock

    async def series(self, caller: Caller, job_id: str, w: WindowWord) -> JobSeries:
        now, window = self._clock.now(), WINDOWS[w]
        async with searching(self._store, caller.tenant, "runs of a job") as connection:
            ends, more = await ends_of_job(connection, caller, job_id)
        steps, total = WindowSteps(window, now), Sum()
        sums = [Sum() for _ in steps.at]
        for end in ends:
            if (index := steps.index(end.ended_at)) is not None:
                _add(sums[index], end)
        for each in sums:
            total.add_all(each)
        durations = [each.ran.percentiles(0.5, 0.99) for each in sums]
        oldest = min((end.ended_at for end in ends), default=now)
        return JobSeries(
            w=w, from_=steps.first, to=now, step_s=int(window.step.total_seconds()), totals=total.totals(window.length),
            at=steps.at,
            **{name: [each.counts[name] for each in sums] for name in _COUNTED.values()},
            lag_p50=[each.lag.percentiles(0.5)[0] for each in sums],
            duration_p50=[p50 for p50, _ in durations],
            duration_p99=[p99 for _, p99 in durations],
            runs=[_bar(end) for end in ends[:_BARS]],
            searched_to=oldest if more and oldest > steps.first else None,
        )  # fmt: skip


def _add(to: Sum, end: RunEnd) -> None:
    to.counts[_COUNTED[StoredState(end.state)]] += 1
    if end.ran_ms is not None:
        to.ran_us += round(end.ran_ms * 1000)
        to.ran.add_values([end.ran_ms])
    if end.lag_ms is not None:
        to.lag.add_values([max(0.0, end.lag_ms)])


def _bar(end: RunEnd) -> RunBar:
    return RunBar(
        run_id=str(end.run_id), status=StoredState(end.state).name, scheduled_for=end.scheduled_for,
        ended_at=end.ended_at, lag=None if end.lag_ms is None else round(max(0.0, end.lag_ms) / 1000, 3),
        duration=None if end.ran_ms is None else round(end.ran_ms / 1000, 3),
    )  # fmt: skip
