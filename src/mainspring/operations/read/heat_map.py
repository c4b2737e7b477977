"""The heat map of a tenant: counted for the request, or read from the forecast if the tenant has very many jobs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from mainspring.domain.errors import Unavailable
from mainspring.domain.intake.times import parse_time
from mainspring.domain.preview.heat_map import first_cell, heat_map
from mainspring.domain.schedules.forecast import DAYS_AHEAD, Census, Forecast, Forecaster
from mainspring.domain.schedules.schedule import MANUAL
from mainspring.domain.schedules.zones import check_timezone
from mainspring.kernel.clock import DatabaseClock
from mainspring.kernel.ids import TenantId
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.access.caller import Caller
from mainspring.operations.paging.search import searching
from mainspring.operations.read.schedule_texts import schedules_of
from mainspring.store import forecasts
from mainspring.store.forecasts import ScheduleGroup
from mainspring.store.pool import Connection, Store
from mainspring.wire.preview import HeatMap, RangeWord

MANY_JOBS = 5000  # of a tenant: too many to evaluate their schedules for a request
MINUTES_AHEAD = (DAYS_AHEAD * 24 + 6) * 60  # a forecast is good for six hours
_EFFORT = 250_000  # fires; about 0.1 s
_OLDEST = timedelta(hours=6)
_RECENT = timedelta(seconds=30)
_MOST_RECENT = 20  # tenants; a forecast has 100 kB
_decode = msgspec.json.Decoder(Forecast).decode


class HeatMapReader:
    def __init__(self, store: Store, clock: DatabaseClock, many: int = MANY_JOBS) -> None:
        self._store = store
        self._clock = clock
        self._many = many
        self._recent: OrderedDict[TenantId, tuple[datetime, Forecast]] = OrderedDict()

    async def heat_map(self, caller: Caller, span: RangeWord, given: str | None, timezone: str) -> HeatMap:
        check_timezone(timezone, "timezone")
        moment = None if given is None else parse_time(given, "from")
        start = first_cell(moment, span, timezone, self._clock.now())
        as_of, forecast = await self._forecast(caller.tenant, start)
        return heat_map(forecast, span, start, timezone, as_of)

    async def recent(self, caller: Caller) -> Forecast:
        """The forecast of the tenant from now on, or from up to half a minute ago on."""
        tenant, now = caller.tenant, self._clock.now()
        known = self._recent.get(tenant)
        if known is None or not timedelta() <= now - known[0] < _RECENT:
            known = now, (await self._forecast(tenant, now))[1]
            self._recent[tenant] = known
            self._recent.move_to_end(tenant)
            while len(self._recent) > _MOST_RECENT:
                self._recent.popitem(last=False)
        return known[1]

    async def _forecast(self, tenant: TenantId, start: datetime) -> tuple[datetime, Forecast]:
        now = self._clock.now()
        async with searching(self._store, tenant, "fires") as connection:
            if not await forecasts.has_many(connection, tenant, self._many):
                until = now + timedelta(minutes=MINUTES_AHEAD)
                groups = await forecasts.schedules_of_tenant(connection, tenant, until)
                census = Census(now)
                await take_groups(connection, tenant, census, groups)
                return now, await _counted(census)
            stored = await forecasts.get(connection, tenant)
        if stored is None or stored.now - stored.as_of > _OLDEST:
            raise Unavailable(
                f"the forecast of a tenant with {self._many:,} jobs or more is not ready", code="forecast_not_ready",
                hint="a server makes it within minutes of its start; try again then",
            )  # fmt: skip
        return stored.as_of, _decode(stored.forecast_text)


async def take_groups(
    connection: Connection, tenant: TenantId, census: Census, groups: Sequence[ScheduleGroup]
) -> None:
    """Add these jobs of one tenant."""
    schedules = await schedules_of(
        connection, tenant, (group.schedule_text for group in groups if group.minute is None)
    )
    slices = TimeSlices()
    for group in groups:
        if group.minute is not None:
            census.add_once(group.minute, group.jobs, group.job_ids)
        elif schedules[group.schedule_text] is not MANUAL:
            census.add(schedules[group.schedule_text], group.jobs, group.job_ids)
        if slices.over:
            await slices.pause()


async def _counted(census: Census) -> Forecast:
    slices, forecaster = TimeSlices(), Forecaster(census, MINUTES_AHEAD, _EFFORT)
    for _ in forecaster.work():
        if slices.over:
            await slices.pause()
    return forecaster.forecast()
