"""Works out which minutes of the days ahead are full, for tenants with so many jobs that no request can.

One server at a time reads all schedules, in one snapshot and in slices, and counts equal ones together. It takes a
twentieth of the time at most.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter

import msgspec

from mainspring.domain.schedules.forecast import Census, Forecaster
from mainspring.kernel.clock import Clock
from mainspring.kernel.ids import TenantId
from mainspring.kernel.logs import get_logger
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.read.heat_map import MANY_JOBS, MINUTES_AHEAD, take_groups
from mainspring.store import forecasts
from mainspring.store.pool import Store

log = get_logger("forecasts")

_tenant = attrgetter("tenant_id")
_CLAIM = 300.0  # seconds
_SOONEST = 60.0
_REST = 20  # times as long as the work
_BLOCKS = 400  # of 8 kB: some thousands of jobs
_EFFORT = 20_000_000  # fires; about ten seconds


class ForecastMaker:
    name = "forecast_maker"
    interval = 15.0

    def __init__(self, store: Store, clock: Clock, many: int = MANY_JOBS) -> None:
        self._store = store
        self._clock = clock
        self._many = many

    async def run_once(self) -> int:
        """Return how many forecasts were made."""
        async with self._store.reads.acquire() as connection:
            claimed = await forecasts.claim_pass(connection, _CLAIM)
            if claimed is None:
                return 0
            tenants = await forecasts.large_tenants(connection, self._many)
        began = self._clock.monotonic()
        for tenant, census in (await self._censuses(tenants, claimed)).items():
            await self._make(tenant, census, claimed)
        took = self._clock.monotonic() - began
        async with self._store.reads.acquire() as connection:
            await forecasts.drop(connection, claimed, tenants)
            if not await forecasts.finish_pass(connection, claimed, max(_SOONEST, _REST * took)):
                log.warning("a forecast took so long that another server made it again", seconds=round(took, 1))
        if tenants:
            log.detail("forecasts made", tenants=len(tenants), seconds=round(took, 3))
        return len(tenants)

    async def _censuses(self, tenants: list[int], now: datetime) -> dict[int, Census]:
        censuses = {tenant: Census(now) for tenant in tenants}
        if not tenants:
            return {}
        until = now + timedelta(minutes=MINUTES_AHEAD)
        # One snapshot: a job that fires meanwhile moves to another block, and would be counted twice or not at all.
        async with (
            self._store.reads.acquire() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            blocks = await forecasts.blocks(connection)
            for first in range(0, blocks, _BLOCKS):
                end = first + _BLOCKS
                groups = await forecasts.schedules_in_blocks(connection, first, end, tenants, until)
                for tenant, of_tenant in groupby(sorted(groups, key=_tenant), key=_tenant):
                    await take_groups(connection, TenantId(tenant), censuses[tenant], list(of_tenant))
        return censuses

    async def _make(self, tenant: int, census: Census, now: datetime) -> None:
        slices, forecaster = TimeSlices(), Forecaster(census, MINUTES_AHEAD, _EFFORT)
        for _ in forecaster.work():
            if slices.over:
                await slices.pause()
        text = msgspec.json.encode(forecaster.forecast()).decode()
        async with self._store.reads.acquire() as connection:
            await forecasts.put(connection, tenant, now, text)
