"""The next fires of all jobs of a tenant, in order of time.

A job has one next fire in the table, and its others follow from its schedule. So all jobs that fire before the end of
the list have to be read. For a tenant with few jobs, all its jobs are read. For a tenant with many, the first jobs of
each shard are read, and the list ends where a shard may have more.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from mainspring.domain.errors import InvalidInput
from mainspring.domain.schedules.fires import count_fires, next_fire
from mainspring.domain.schedules.schedule import MANUAL, Schedule
from mainspring.domain.schedules.upcoming import INSTANT, end_of_list
from mainspring.kernel.clock import DatabaseClock
from mainspring.kernel.config import SHARD_COUNT
from mainspring.kernel.ids import TenantId
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.access.caller import Caller
from mainspring.operations.lookup import load_lane
from mainspring.operations.paging.cursors import bad_cursor, encode_place, job_cursor
from mainspring.operations.paging.search import searching
from mainspring.operations.read.heat_map import MANY_JOBS
from mainspring.operations.read.schedule_texts import schedules_of
from mainspring.store import forecasts
from mainspring.store.forecasts import NextFire
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import Connection, Store
from mainspring.wire.preview import UpcomingFire, UpcomingFires

_OF_A_SHARD = 100


class UpcomingQuery(msgspec.Struct, frozen=True):
    """The parameters of `GET /v1/insights/upcoming`."""

    start: datetime | None
    end: datetime | None
    cursor: str | None
    limit: int


class _Known(msgspec.Struct):
    """The jobs that fire next. until: whose fires before this moment are all known. whole: up to the end."""

    rows: list[NextFire]
    until: datetime
    whole: bool


class UpcomingReader:
    def __init__(self, store: Store, lanes: LaneRegistry, clock: DatabaseClock, many: int = MANY_JOBS) -> None:
        self._store = store
        self._lanes = lanes
        self._clock = clock
        self._many = many
        self.of_a_shard = _OF_A_SHARD

    async def upcoming(self, caller: Caller, query: UpcomingQuery) -> UpcomingFires:
        now = self._clock.now()
        start = query.start or now
        end = end_of_list(start, query.end)
        after = job_cursor(query.cursor)
        if after is not None and not isinstance(after, tuple):
            raise bad_cursor()
        async with searching(self._store, caller.tenant, "upcoming fires") as connection:
            known = await self._known(connection, caller.tenant, end)
            first = after[0] if after is not None else query.start
            if first is not None and first > known.until:
                raise _too_far(known.until)
            schedules = await schedules_of(connection, caller.tenant, (row.schedule_text for row in known.rows))
            known.rows = [row for row in known.rows if schedules[row.schedule_text] is not MANUAL]
            fires, rest = await _in_order(known, schedules, first, after, end, query.limit)
            shown = [await self._shown(connection, moment, row, schedules[row.schedule_text]) for moment, row in fires]
        full = len(shown) >= query.limit and rest
        return UpcomingFires(
            from_=(first or start).astimezone(UTC),
            until=shown[-1].at if full else known.until,
            fires=shown,
            more=rest or not known.whole,
            next=encode_place((shown[-1].at, shown[-1].job_id)) if full and shown[-1].at < known.until else None,
        )

    async def _known(self, connection: Connection, tenant: TenantId, end: datetime) -> _Known:
        if not await forecasts.has_many(connection, tenant, self._many):
            return _Known(await forecasts.next_of_tenant(connection, tenant, end), end, whole=True)
        found = await forecasts.next_of_shards(connection, range(SHARD_COUNT), end, self.of_a_shard)
        last: dict[int, tuple[int, datetime]] = {}
        for row in found:
            last[row.shard] = (last.get(row.shard, (0, end))[0] + 1, row.next_fire_at)
        until = min((moment for count, moment in last.values() if count >= self.of_a_shard), default=None)
        own = [row for row in found if row.tenant_id == tenant]
        return _Known(own, end if until is None else until, whole=until is None)

    async def _shown(self, connection: Connection, moment: datetime, row: NextFire, schedule: Schedule) -> UpcomingFire:
        lane = await load_lane(self._lanes, connection, row.lane_id)
        return UpcomingFire(moment, row.job_id, row.name or lane.task, schedule.words(), lane.queue)


async def _in_order(
    known: _Known,
    schedules: Mapping[str, Schedule],
    start: datetime | None,
    after: tuple[datetime, str] | None,
    end: datetime,
    limit: int,
) -> tuple[list[tuple[datetime, NextFire]], bool]:
    """The first fires, and whether others follow before the end."""
    slices = TimeSlices()
    following: dict[tuple[str, datetime], datetime | None] = {}  # jobs share schedules

    def next_of(row: NextFire, moment: datetime) -> datetime | None:
        key = (row.schedule_text, moment)
        if key not in following:
            schedule = schedules[row.schedule_text]
            following[key] = next_fire(schedule, moment) if schedule.recurring else None
        later = following[key]
        if later is None or row.runs_left is None:
            return later
        between = count_fires(schedules[row.schedule_text], row.next_fire_at, later)
        return later if between < row.runs_left else None  # the next fire is a run too

    heap: list[tuple[datetime, str, int]] = []
    for number, row in enumerate(known.rows):
        moment: datetime | None = row.next_fire_at
        if start is not None and row.next_fire_at < start:
            moment = next_of(row, start - INSTANT)
        if moment is not None and moment < end:
            heap.append((moment, row.job_id, number))
        if slices.over:
            await slices.pause()
    heapq.heapify(heap)
    fires: list[tuple[datetime, NextFire]] = []
    while heap and len(fires) < limit and heap[0][0] <= known.until:
        moment, job_id, number = heap[0]
        row = known.rows[number]
        if after is None or (moment, job_id) > after:
            fires.append((moment, row))
        later = next_of(row, moment)
        if later is not None and later < end:
            heapq.heapreplace(heap, (later, job_id, number))
        else:
            heapq.heappop(heap)
        if slices.over:
            await slices.pause()
    return fires, bool(heap)


def _too_far(until: datetime) -> InvalidInput:
    return InvalidInput(
        "too many jobs fire before this time", code="invalid_parameter", field="from",
        expected=f"a time up to {until.isoformat()}",
        hint="GET /v1/insights/heatmap tells how many fires there are, and jobs one by one have upcoming fires",
    )  # fmt: skip
