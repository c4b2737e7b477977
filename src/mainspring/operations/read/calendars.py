"""Reads calendars."""

from __future__ import annotations

from mainspring.domain.intake.calendar_names import no_calendar
from mainspring.operations.access.caller import Caller
from mainspring.operations.calendars.views import calendar_view
from mainspring.operations.paging.cursors import cursor_after_names, name_cursor
from mainspring.operations.paging.search import searching
from mainspring.store import calendars
from mainspring.store.pool import Store
from mainspring.wire.calendars import CalendarList, CalendarView


class CalendarReader:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def calendars(self, caller: Caller, cursor: str | None, limit: int) -> CalendarList:
        """The calendars of the tenant, by name."""
        after = name_cursor(cursor)
        async with searching(self._store, caller.tenant, "calendars") as connection:
            rows = await calendars.page(connection, caller.tenant, after, limit + 1)
        following = cursor_after_names(rows, limit)
        return CalendarList([calendar_view(row) for row in rows[:limit]], following)

    async def calendar(self, caller: Caller, name: str) -> CalendarView:
        if "\x00" in name:
            raise no_calendar(name)
        async with searching(self._store, caller.tenant, "calendars") as connection:
            row = await calendars.get(connection, caller.tenant, name)
            if row is None:
                raise no_calendar(name)
            return calendar_view(row, await calendars.use(connection, row))
