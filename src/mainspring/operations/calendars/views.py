"""Calendars as clients see them."""

from __future__ import annotations

import msgspec

from mainspring.store.calendars import CalendarRow, CalendarUse
from mainspring.wire.calendars import CalendarRequest, CalendarView, HolidaysIn

_decode = msgspec.json.Decoder(CalendarRequest).decode


def calendar_view(row: CalendarRow, use: CalendarUse | None = None) -> CalendarView:
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
