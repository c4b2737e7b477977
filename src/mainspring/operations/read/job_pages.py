"""Pages of jobs, newest first, from two sources: jobs that have a row, in the order of their creation, and one-time
jobs that have fired, in the order of the runs that decide their status.

A filter may match few of many jobs. So each source is read a stretch at a time, and the whole page has a budget of
time. When that is over, the page ends where both sources have been read. It may then be short or even empty, and
`next` continues there.

A page ends with a job or with a run. Both sources continue after it: a run takes its place by the time in its id, after
the jobs that were created at that time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Generic, Protocol, TypeVar
from uuid import UUID

import msgspec

from mainspring.domain.transitions import JobStatus, RunState, StoredJobStatus
from mainspring.kernel.ids import TenantId, first_uuid7, uuid7_time
from mainspring.operations.lookup import load_lane
from mainspring.operations.read.job_health import add_health
from mainspring.operations.read.one_time import deciding_run, fired_jobs_of, overlapped, states_of, status_of
from mainspring.operations.read.quota_hold import show_quota_holds
from mainspring.operations.read.views import fired_job_view, job_view
from mainspring.store import fired_jobs, jobs
from mainspring.store.fired_jobs import FiredFilter, brief_of
from mainspring.store.history import Run
from mainspring.store.jobs import JobFilter, JobRow, Place, RowFilter
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pages import PAGE_BYTES, cut
from mainspring.store.pool import Connection
from mainspring.store.shown_definitions import schedule_to_show
from mainspring.wire.jobs import JobView
from mainspring.wire.runs import RunBrief

YET_TO_FIRE = frozenset({JobStatus.SCHEDULED, JobStatus.PAUSED})
_CLOCKS_DIFFER = timedelta(hours=1)
_MOST_AT_A_TIME = 10_000
_LEAST = 200
_ONCE = frozenset({"IMMEDIATE", "FUTURE", "MANUAL", "AFTER", "EVENT"})  # types of jobs that may have fired for good

At = TypeVar("At", Place, UUID)


class Wanted(msgspec.Struct, frozen=True):
    """Which jobs a list shows. `statuses`: as they are shown; None for jobs that have yet to fire or will fire again.
    `latest`: the states of the latest run; None for any. `schedule_types`: None for any."""

    statuses: frozenset[JobStatus] | None = None
    latest: Collection[RunState] | None = None
    schedule_types: frozenset[str] | None = None
    asked: JobFilter = JobFilter()

    @property
    def fires_again(self) -> bool:
        """Whether no one-time job that has fired can match."""
        asked = self.asked
        if asked.health is not None:
            return True
        if self.schedule_types is not None and not self.schedule_types & _ONCE:
            return True
        return not (asked.next_fire_after is None and asked.next_fire_before is None and asked.declared_by is None)

    def accepts(self, view: JobView) -> bool:
        """The rest of the filter, which the statements do not decide."""
        if self.statuses is not None and view.status not in self.statuses:
            return False
        if self.latest is not None and (view.latest_run is None or view.latest_run.status not in self.latest):
            return False
        if self.schedule_types is not None and view.schedule_type not in self.schedule_types:
            return False
        after, before = self.asked.created_after, self.asked.created_before
        if after is not None and view.created_at < after:
            return False
        return before is None or view.created_at < before


class Entry(msgspec.Struct, Generic[At], frozen=True):
    place: At
    weight: int
    view: JobView


class PageStretch(msgspec.Struct, Generic[At]):
    """What a source has, down to `end`. None: there is nothing after it."""

    found: list[Entry[At]]
    end: At | None


class Source(Protocol[At]):
    async def boundary(self, before: At | None, count: int) -> At | None: ...
    async def read(self, before: At | None, floor: At | None, limit: int) -> list[Entry[At]]: ...


def row_filter(wanted: Wanted) -> RowFilter:
    """Which jobs that have a row. The latest run is not part of it."""
    shown = YET_TO_FIRE if wanted.statuses is None else wanted.statuses
    return RowFilter(
        statuses=[int(status) for status in StoredJobStatus if status.name in shown],
        missed=wanted.statuses is not None and shown != {JobStatus.PAUSED},
        asked=wanted.asked,
    )


def fired_states(wanted: Wanted) -> tuple[list[int], list[int]]:
    """Which one-time jobs that have fired: the ranks of live runs and the states of ended ones that decide."""
    return states_of(() if wanted.fires_again else sorted(wanted.statuses or ()))


class JobsWithRows:
    """The jobs that have a row."""

    def __init__(
        self, connection: Connection, tenant: TenantId, lanes: LaneRegistry, wanted: Wanted, *, light: bool = False
    ) -> None:
        self._connection, self._tenant, self._lanes, self._light = connection, tenant, lanes, light
        self._filter = row_filter(wanted)

    async def boundary(self, before: Place | None, count: int) -> Place | None:
        return await jobs.boundary(self._connection, self._tenant, self._filter, before, count)

    async def read(self, before: Place | None, floor: Place | None, limit: int) -> list[Entry[Place]]:
        rows = await jobs.list_jobs(
            self._connection, self._tenant, self._filter, before, floor, limit, light=self._light
        )
        latest = await fired_jobs.newest_runs(
            self._connection, self._tenant, [row.job_id for row in rows], [row.generation for row in rows]
        )
        found = []
        for row in rows:
            lane, brief, status = (
                await load_lane(self._lanes, self._connection, row.lane_id),
                latest.get(row.job_id),
                None,
            )
            if was_missed(row):
                run = await deciding_run(self._connection, self._tenant, row.job_id, None, row.generation)
                status = status_of_missed(run)
                brief = None if run is None else fired_jobs.with_cut_error(brief_of(run))
            found.append(Entry((row.created_at, row.job_id), row.weight, job_view(row, lane, brief, status)))
        await add_health(self._connection, self._tenant, [entry.view for entry in found])
        await show_quota_holds(self._connection, self._tenant, _latest_runs(found))
        return found


class JobsThatFired:
    """One-time jobs that have fired. Their runs have the ids of their creation, or later ones."""

    def __init__(
        self, connection: Connection, tenant: TenantId, lanes: LaneRegistry, wanted: Wanted, *, light: bool = False
    ) -> None:
        self._connection, self._tenant, self._lanes, self._light = connection, tenant, lanes, light
        ranks, states = fired_states(wanted)
        asked = wanted.asked
        after, until = asked.created_after, asked.created_before
        self._filter = FiredFilter(
            ranks=ranks,
            states=states,
            lane_ids=asked.lane_ids,
            owner=asked.owner,
            label=asked.label,
            text=asked.text,
            created_from=None if after is None else first_uuid7(after),
            created_until=None if until is None else first_uuid7(until),
            created_by=asked.created_by,
            within=asked.within,
        )
        self._lowest = None if after is None else first_uuid7(_earlier(after))

    @property
    def any(self) -> bool:
        return bool(self._filter.ranks or self._filter.states)

    async def boundary(self, before: UUID | None, count: int) -> UUID | None:
        found = await fired_jobs.boundary(self._connection, self._filter, before, count)
        return None if found is None or (self._lowest is not None and found < self._lowest) else found

    async def read(self, before: UUID | None, floor: UUID | None, limit: int) -> list[Entry[UUID]]:
        lowest = floor or self._lowest
        found_runs = await fired_jobs.page(
            self._connection, self._tenant, self._filter, before, lowest, limit, light=self._light
        )
        runs, _ = cut(found_runs, limit)
        found = []
        for run, job in zip(runs, await fired_jobs_of(self._connection, self._tenant, runs), strict=True):
            lane = await load_lane(self._lanes, self._connection, job.fired.lane_id)
            found.append(Entry(run.run_id, run.weight, fired_job_view(job, lane, listed=True)))
        await show_quota_holds(self._connection, self._tenant, _latest_runs(found))
        return found


def _latest_runs(entries: Sequence[Entry[At]]) -> list[RunBrief]:
    return [entry.view.latest_run for entry in entries if entry.view.latest_run is not None]


async def gather(
    source: Source[At], wanted: Wanted, before: At | None, limit: int, over: Callable[[], bool], first: int
) -> PageStretch[At]:
    """The next jobs of a source: more than `limit`, or as many as there are, or as there is time for."""
    found: list[Entry[At]] = []
    weight, count = 0, first
    # The statements do not know latest runs and types of schedules.
    least = 1 if wanted.latest is None and wanted.schedule_types is None else _LEAST
    while True:
        floor = await source.boundary(before, count)
        asked = max(limit + 1 - len(found), least)
        came = await source.read(before, floor, asked)
        found += [entry for entry in came if wanted.accepts(entry.view)]
        weight += sum(entry.weight for entry in came)
        cut_short = len(came) == asked or weight > PAGE_BYTES
        reached = came[-1].place if came and cut_short else floor
        if reached is None or len(found) > limit or weight > PAGE_BYTES or over():
            return PageStretch(found, reached)
        before, count = reached, count if cut_short else min(4 * count, _MOST_AT_A_TIME)


def merge(rows: PageStretch[Place], fired: PageStretch[UUID], limit: int) -> tuple[list[JobView], Place | UUID | None]:
    """The jobs of one page, and the place where it ends. None if nothing follows."""
    page: list[JobView] = []
    weight = 0
    waiting, runs = list(reversed(rows.found)), list(reversed(fired.found))
    last: Place | UUID | None = None
    while waiting or runs:
        entry: Entry[Place] | Entry[UUID]
        if waiting and (not runs or waiting[-1].place[0] >= uuid7_time(runs[-1].place)):
            if fired.end is not None and uuid7_time(fired.end) > waiting[-1].place[0]:
                break
            entry = waiting.pop()
        else:
            if rows.end is not None and rows.end[0] >= uuid7_time(runs[-1].place):
                break
            entry = runs.pop()
        if len(page) == limit or weight > PAGE_BYTES:
            return page, last
        page.append(entry.view)
        weight += entry.weight
        last = entry.place
    return page, _newest(rows.end, fired.end)


def _newest(row: Place | None, run: UUID | None) -> Place | UUID | None:
    if row is None or run is None:
        return row if run is None else run
    return row if row[0] >= uuid7_time(run) else run


def row_place(after: Place | UUID | None) -> Place | None:
    """Where the jobs with rows continue."""
    return (uuid7_time(after), "") if isinstance(after, UUID) else after


def run_place(after: Place | UUID | None) -> UUID | None:
    """Where the jobs that have fired continue: a run with the time of the job comes after it."""
    if after is None or isinstance(after, UUID):
        return after
    return first_uuid7(after[0] + timedelta(microseconds=1))


def time_of(place: Place | UUID) -> datetime:
    """When the jobs of this place were created, or fired."""
    return uuid7_time(place) if isinstance(place, UUID) else place[0]


def was_missed(row: JobRow) -> bool:
    """Whether this is a one-time job that did not fire because it was too late."""
    return row.status == StoredJobStatus.COMPLETED and schedule_to_show(row.schedule_text)[0].one_time


def status_of_missed(run: Run | None) -> JobStatus:
    """The job has failed, unless it was run again."""
    return JobStatus.FAILED if run is None or overlapped(run) else status_of(run)


def _earlier(moment: datetime) -> datetime:
    return max(moment, _FIRST + _CLOCKS_DIFFER) - _CLOCKS_DIFFER


_FIRST = datetime.fromisoformat("0001-01-01T00:00:00Z")
