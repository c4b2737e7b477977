"""Failures by fingerprint: of all jobs from the groups of each hour, of one job from its newest runs."""

from __future__ import annotations

from datetime import datetime, timedelta
from heapq import nlargest, nsmallest

import msgspec

from mainspring.domain.errors import InvalidInput, NotFound
from mainspring.domain.fingerprints import fingerprint, masked
from mainspring.domain.rollups import KEPT, Span, floor_to
from mainspring.kernel.clock import DatabaseClock
from mainspring.kernel.ids import parse_uuid
from mainspring.operations.access.caller import Caller
from mainspring.operations.lookup import no_job
from mainspring.operations.read.one_time import fired_job
from mainspring.store import failure_groups, jobs, rollups
from mainspring.store.failure_groups import FailureGroup, GroupFilter, GroupMinutes
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import Connection, Store
from mainspring.store.rollups import RunEnd
from mainspring.wire.insights import FailureGroupView, Failures, FailureView

MOST_RUNS = 3000  # of a job
_MOST_GROUPS = 200
_MOST_STEPS = 360
_SHOWN_JOBS = 20
_DEFAULT = timedelta(hours=24)
_DEFAULT_OF_ONE = timedelta(days=7)
_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)
_STEPS = tuple(timedelta(minutes=each) for each in (1, 5, 15, 60, 180, 360, 1440))


class FailureReader:
    def __init__(self, store: Store, lanes: LaneRegistry, clock: DatabaseClock) -> None:
        self._store = store
        self._lanes = lanes
        self._clock = clock

    async def failures(
        self, caller: Caller, since: datetime | None, task: str | None, queue: str | None, job: str | None
    ) -> Failures:
        grid = self._grid(since, _DEFAULT)
        if job is not None:
            async with self._store.reads.acquire() as connection:
                return await self._of_job(connection, caller, job, grid, (task, queue))
        return await self._groups(GroupFilter(caller.tenant, grid.first, task, queue), grid)

    async def group(self, caller: Caller, name: str, since: datetime | None) -> FailureGroupView:
        """One group, by its fingerprint. Raises NotFound."""
        grid = self._grid(since, _DEFAULT_OF_ONE)
        found = await self._groups(GroupFilter(caller.tenant, grid.first, fingerprint=name), grid)
        if not found.groups:
            raise NotFound(
                f"no failure with the fingerprint {name!r} since {grid.first.isoformat()}",
                hint="GET /v1/insights/failures lists the groups; since=T looks farther back",
            )
        return FailureGroupView(found.from_, found.to, found.step_s, found.at, found.groups[0], found.complete_until)

    def _grid(self, since: datetime | None, usual: timedelta) -> _Grid:
        now = self._clock.now()
        start = now - usual if since is None else since
        if start >= now:
            raise InvalidInput(
                "since is not in the past", code="invalid_time", field="since", expected="a time before now"
            )
        return _Grid(max(start, now - KEPT[Span.HOUR]), now)

    async def _groups(self, chosen: GroupFilter, grid: _Grid) -> Failures:
        async with self._store.reads.acquire() as connection:
            until = await rollups.watermark(connection)
            groups = await failure_groups.largest(connection, chosen, _MOST_GROUPS)
            found = {largest.fingerprint: _group(largest) for largest in groups}
            if grid.step < _HOUR:
                for hour in await failure_groups.minutes(connection, chosen, groups):
                    found[hour.fingerprint].add_minutes(hour, grid)
            else:
                for group in await failure_groups.steps(connection, chosen, groups, grid.step):
                    found[group.fingerprint].steps = dict(zip(group.steps, group.counts, strict=True))
            newest = msgspec.structs.replace(chosen, since=max(grid.first, grid.now - _DEFAULT))
            for hit in await failure_groups.jobs_hit(connection, newest, groups):
                found[hit.fingerprint].job_ids.update(hit.job_ids)
        left_out = groups[0].groups - len(groups) if groups else 0
        return grid.answer(found, until, None, left_out)

    async def _of_job(
        self, connection: Connection, caller: Caller, job: str, grid: _Grid, only: tuple[str | None, str | None]
    ) -> Failures:
        try:
            ends, more = await ends_of_job(connection, caller, job)
        except NotFound:  # a filter that matches nothing
            return grid.answer({}, None, None)
        found: dict[str, _Group] = {}
        for end in ends:
            lane = self._lanes.peek(end.lane_id)
            if lane is None:
                await self._lanes.refresh(connection)
                lane = await self._lanes.get(end.lane_id)
            wanted = all(name in (None, value) for name, value in zip(only, (lane.task, lane.queue), strict=True))
            if end.line is None or not wanted:
                continue
            title = masked(end.line)
            group = found.setdefault(fingerprint(lane.task, title), _Group(title))
            group.add_run(end, lane.task, lane.queue, job, grid)
        return grid.answer(found, None, ends[-1].ended_at if more else None)


async def ends_of_job(connection: Connection, caller: Caller, job_id: str) -> tuple[list[RunEnd], bool]:
    """The newest ended runs of a job, and whether there are more. Raises NotFound."""
    if await jobs.get(connection, caller.tenant, job_id) is None:
        fired = await fired_job(connection, caller.tenant, job_id)
        if fired is None:
            raise no_job(job_id)
        job_id = fired.job_id
    ends = await rollups.ends_of_job(connection, caller.tenant, job_id, MOST_RUNS + 1, parse_uuid(job_id))
    return ends[:MOST_RUNS], len(ends) > MOST_RUNS


class _Grid:
    """The steps from a time until now: as short as possible, 360 at most."""

    def __init__(self, start: datetime, now: datetime) -> None:
        self.step = next(each for each in _STEPS if (now - start) / each < _MOST_STEPS - 1 or each is _STEPS[-1])
        self.first = floor_to(start, self.step)
        self.now = now
        self.at = [self.first + n * self.step for n in range(int((now - self.first) // self.step) + 1)]

    @property
    def skipped_minutes(self) -> int:
        """The minutes of the hour in which the first step begins that come before it."""
        return int((self.first - floor_to(self.first, _HOUR)) / _MINUTE)

    def index(self, moment: datetime) -> int | None:
        number = int((moment - self.first) // self.step)
        return min(number, len(self.at) - 1) if number >= 0 else None

    def answer(
        self, found: dict[str, _Group], until: datetime | None, searched_to: datetime | None, left_out: int = 0
    ) -> Failures:
        counted = {name: group for name, group in found.items() if group.count}
        largest = nlargest(_MOST_GROUPS, counted, key=lambda name: counted[name].count)
        return Failures(
            from_=self.first, to=self.now, step_s=int(self.step.total_seconds()), at=self.at,
            groups=[counted[name].view(name, len(self.at)) for name in largest],
            left_out=left_out + len(counted) - len(largest), complete_until=until, searched_to=searched_to,
        )  # fmt: skip


def _group(group: FailureGroup) -> _Group:
    return _Group(
        group.title, group.count, group.failed, group.first_at, group.last_at, str(group.sample_run), {},
        set(group.tasks), set(group.queues), set(),
    )  # fmt: skip


class _Group(msgspec.Struct):
    title: str
    count: int = 0
    failed: int = 0
    first: datetime | None = None
    last: datetime | None = None
    sample_run: str = ""
    steps: dict[int, int] = {}
    tasks: set[str] = set()
    queues: set[str] = set()
    job_ids: set[str] = set()

    def add_minutes(self, hour: GroupMinutes, grid: _Grid) -> None:
        """Minutes before the first step are left out."""
        first = hour.first - grid.skipped_minutes
        size = int(grid.step / _MINUTE)
        for minute in range(max(0, -first), len(hour.counts), size):
            if count := sum(hour.counts[minute : minute + size]):
                step = (first + minute) // size
                self.steps[step] = self.steps.get(step, 0) + count

    def add_run(self, end: RunEnd, task: str, queue: str, job: str, grid: _Grid) -> None:
        if (index := grid.index(end.ended_at)) is None:
            return
        self.steps[index] = self.steps.get(index, 0) + 1
        self._put(1, 1)
        self._span(end.ended_at, end.ended_at, str(end.run_id))
        self.tasks.add(task)
        self.queues.add(queue)
        self.job_ids.add(job)

    def _put(self, count: int, failed: int) -> None:
        self.count += count
        self.failed += failed

    def _span(self, first: datetime, last: datetime, sample: str) -> None:
        self.first = first if self.first is None else min(first, self.first)
        if self.last is None or last >= self.last:
            self.last, self.sample_run = last, sample

    def view(self, name: str, steps: int) -> FailureView:
        assert self.first is not None and self.last is not None
        return FailureView(
            fingerprint=name, title=self.title, count=self.count, failed=self.failed, first=self.first, last=self.last,
            series=[self.steps.get(index, 0) for index in range(steps)], tasks=sorted(self.tasks),
            queues=sorted(self.queues), jobs=len(self.job_ids), job_ids=nsmallest(_SHOWN_JOBS, self.job_ids),
            sample_run=self.sample_run,
        )  # fmt: skip
