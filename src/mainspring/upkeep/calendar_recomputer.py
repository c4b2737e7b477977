"""Brings next fires to the current rules: after a change of a calendar, and when this server has newer time zones or
holidays than those that decided them."""

from __future__ import annotations

from mainspring.kernel.logs import get_logger
from mainspring.operations.calendars.recompute import Recomputer
from mainspring.operations.signals import Signals
from mainspring.store import calendars
from mainspring.store.pool import Connection, Store
from mainspring.upkeep.library_versions import LibraryVersions, newer

log = get_logger("calendar_recomputer")


class CalendarRecomputer:
    name = "calendar_recomputer"
    interval = 1.0

    def __init__(self, store: Store, signals: Signals, recomputer: Recomputer, versions: LibraryVersions) -> None:
        self._store = store
        self._signals = signals
        self._recomputer = recomputer
        self._versions = versions
        self._compared = False

    async def run_once(self) -> int:
        """Return how many jobs were moved to other rules or checked."""
        async with self._store.reads.acquire() as connection:
            if not self._compared:
                await self._compare(connection)
                self._compared = True
            pending = await calendars.pending(connection)
        done = 0
        for tenant, name in pending:
            done += await self._recomputer.calendar(tenant, name)
        while passed := await self._recomputer.walk():
            done += passed
        if done:
            self._signals.due.publish()
        return done

    async def _compare(self, connection: Connection) -> None:
        """Once, at the start. Older libraries than those of another server change nothing."""
        tzdata, holidays = self._versions
        before = await calendars.libraries(connection)
        if before is None:
            await calendars.first_libraries(connection, tzdata, holidays)
            return
        tzdata, holidays = newer(before.tzdata, tzdata), newer(before.holidays, holidays)
        if (tzdata, holidays) != (before.tzdata, before.holidays) and await calendars.begin_walk(
            connection, before, tzdata, holidays
        ):
            log.info("newer time zones or holidays: all next fires are looked at", tzdata=tzdata, holidays=holidays)
