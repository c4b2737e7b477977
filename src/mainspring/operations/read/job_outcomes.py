"""What became of the newest runs of several jobs, for the rows of a list: the last ten, and how many of a week went
well."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import groupby

from mainspring.domain.errors import InvalidInput
from mainspring.domain.transitions import StoredState
from mainspring.kernel.clock import DatabaseClock
from mainspring.operations.access.caller import Caller
from mainspring.operations.paging.search import searching
from mainspring.store import rollups
from mainspring.store.pool import Store
from mainspring.store.rollups import OutcomeRow
from mainspring.wire.insights import JobOutcomeList, JobOutcomes, OutcomeBar

MOST_JOBS = 100
_WEEK = timedelta(days=7)
_BARS = 10
_COUNTED = 100  # runs of a job at most: a page of jobs that fire each second reads no more


class JobOutcomeReader:
    def __init__(self, store: Store, clock: DatabaseClock) -> None:
        self._store = store
        self._clock = clock

    async def outcomes(self, caller: Caller, job_ids: Sequence[str]) -> JobOutcomeList:
        """Of those of the jobs that exist and had a run within the week, in the order of their ids."""
        wanted = sorted(set(job_ids))
        if not 0 < len(wanted) <= MOST_JOBS:
            raise InvalidInput(
                f"job names {len(wanted)} jobs", code="invalid_parameter", field="job",
                expected=f"1 to {MOST_JOBS} ids, such as job=a&job=b",
            )  # fmt: skip
        if any("\x00" in job_id for job_id in wanted):
            raise InvalidInput("an id has the character NUL", code="invalid_parameter", field="job")
        since = self._clock.now() - _WEEK
        async with searching(self._store, caller.tenant, "runs of jobs") as connection:
            rows = await rollups.outcomes(connection, caller.tenant, wanted, _COUNTED, since)
        return JobOutcomeList(since, [_of(job, list(of_job)) for job, of_job in groupby(rows, lambda row: row.job_id)])


def _of(job_id: str, rows: Sequence[OutcomeRow]) -> JobOutcomes:
    states = [row.state for row in rows]
    return JobOutcomes(
        job_id, states.count(StoredState.SUCCESS), states.count(StoredState.FAILED),
        len(rows) == _COUNTED, [_bar(row) for row in rows[:_BARS]],
    )  # fmt: skip


def _bar(row: OutcomeRow) -> OutcomeBar:
    duration = None if row.ran_ms is None else round(row.ran_ms / 1000, 3)
    return OutcomeBar(str(row.run_id), StoredState(row.state).name, row.scheduled_for, row.ended_at, duration)
