"""Reads calendars."""

from __future__ import annotations

import msgspec

from mainspring.domain.intake.calendar_names import no_calendar
from mainspring.operations.access.caller import Caller
from mainspring.operations.calendars.changes import check_migrated
from mainspring.operations.read.cursors import bad_cursor, decode_cursor, encode_cursor
from mainspring.operations.read.search import searching
from mainspring.store import calendars
from mainspring.store.calendars import CalendarRow, CalendarUse
from mainspring.store.pool import Store
from mainspring.wire.calendars import CalendarList, CalendarRequest, CalendarView, HolidaysIn

_decode = msgspec.json.Decoder(CalendarRequest).decode


class CalendarReader:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def calendars(self, caller: Caller, cursor: str | None, limit: int) -> CalendarList:
        """By name."""
        after = None if cursor is None else decode_cursor(cursor)
        if after is not None and "\x00" in after:
            raise bad_cursor()
        async with searching(self._store, caller.tenant, "calendars") as connection:
            await check_migrated(connection)
            rows = await calendars.page(connection, caller.tenant, after, limit + 1)
        following = encode_cursor(rows[limit - 1].name) if len(rows) > limit else None
        return CalendarList([_view(row) for row in rows[:limit]], following)

    async def calendar(self, caller: Caller, name: str) -> CalendarView:
        if "\x00" in name:
            raise no_calendar(name)
        async with searching(self._store, caller.tenant, "calendars") as connection:
            await check_migrated(connection)
            row = await calendars.get(connection, caller.tenant, name)
            if row is None:
                raise no_calendar(name)
            return _view(row, await calendars.use(connection, row))


def _view(row: CalendarRow, use: CalendarUse | None = None) -> CalendarView:
    rules = _decode(row.rules_text)
    holidays = rules.holidays or []
    return CalendarView(
        name=row.name,
        version=row.version,
        created_at=row.created_at,
        updated_at=row.updated_at,
        timezone=rules.timezone,
        holidays=[holidays] if isinstance(holidays, HolidaysIn) else holidays,
        dates=rules.dates or [],
        weekdays=rules.weekdays or [],
        hours=rules.hours,
        blackouts=rules.blackouts or [],
        description=row.description,
        jobs=None if use is None else use.jobs,
        pending=None if use is None else use.pending,
        recomputed=None if use is None else row.recomputed,
    )
