"""The figures of single jobs for the metrics, of those that the scrape names: no other job costs anything."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby

import msgspec

from mainspring.domain.errors import InvalidInput
from mainspring.domain.transitions import StoredState
from mainspring.operations.access.caller import Caller
from mainspring.store import rollups
from mainspring.store.pool import Store
from mainspring.store.rollups import NewestEnd

MOST_JOBS = 100
_MOST_RUNS = 50
_JUDGED = (StoredState.SUCCESS, StoredState.FAILED)


class JobGauges(msgspec.Struct, frozen=True):
    """Of the newest runs of a job that succeeded or failed. Times are in seconds since 1970."""

    job_id: str
    next_fire: float | None
    ended: float | None = None
    succeeded: float | None = None
    duration: float | None = None
    lag: float | None = None
    failures: int = 0


class JobGaugeReader:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def jobs(self, caller: Caller, job_ids: Sequence[str]) -> list[JobGauges]:
        """Of those that exist, in the order of their ids."""
        wanted = sorted(set(job_ids))
        if len(wanted) > MOST_JOBS:
            raise InvalidInput(
                f"job names {len(wanted)} jobs", field="job", expected=f"at most {MOST_JOBS}",
                hint="metrics by task and queue are there for all; scrape the others with a second request",
            )  # fmt: skip
        if not wanted:
            return []
        async with self._store.reads.acquire() as connection:
            rows = await rollups.newest_ends(connection, caller.tenant, wanted, _MOST_RUNS)
        return [_gauges(job_id, list(of_job)) for job_id, of_job in groupby(rows, key=lambda row: row.job_id)]


def _gauges(job_id: str, rows: Sequence[NewestEnd]) -> JobGauges:
    judged = [row for row in rows if row.state in _JUDGED]
    gauges = JobGauges(job_id, _seconds(rows[0].next_fire_at))
    if not judged:
        return gauges
    good = next((number for number, row in enumerate(judged) if row.state == StoredState.SUCCESS), None)
    newest = judged[0]
    return msgspec.structs.replace(
        gauges,
        ended=_seconds(newest.ended_at),
        succeeded=None if good is None else _seconds(judged[good].ended_at),
        duration=None if newest.ran_ms is None else newest.ran_ms / 1000,
        lag=None if newest.lag_ms is None else newest.lag_ms / 1000,
        failures=len(judged) if good is None else good,
    )


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
