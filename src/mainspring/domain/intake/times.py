"""Intake of times."""

from __future__ import annotations

from datetime import UTC, datetime

from mainspring.domain.errors import InvalidInput
from mainspring.domain.schedules.zones import check_timezone, zone
from mainspring.domain.texts import shown

_FIRST_YEAR, _LAST_YEAR = 1900, 9998  # the driver maps the first and last year of the calendar to infinity


def parse_time(text: str, field: str, timezone: str | None = None, timezone_field: str = "timezone") -> datetime:
    """An aware UTC time. A time without an offset needs `timezone`."""
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        raise _bad_time(f"{shown(text)} is not a time", field) from None
    named = None if timezone is None else zone(check_timezone(timezone, timezone_field))
    if moment.tzinfo is None:
        if named is None:
            raise InvalidInput(
                f"{shown(text)} has no time zone",
                code="missing_timezone",
                field=field,
                expected="a time with its zone",
                hint=f'add one: "{moment.isoformat()}Z" or "{moment.isoformat()}+01:00"',
            )
        moment = moment.replace(tzinfo=named)
    try:
        in_utc = moment.astimezone(UTC)
        agrees = named is None or in_utc.astimezone(named).utcoffset() == moment.utcoffset()
    except OverflowError:
        raise _bad_time(f"{shown(text)} is out of range", field) from None
    if not _FIRST_YEAR <= in_utc.year <= _LAST_YEAR:
        raise _bad_time(f"{shown(text)} is out of range", field)
    if not agrees and moment.tzinfo is not named:
        raise InvalidInput(
            f"{shown(text)} has an offset that is not the offset of {timezone}",
            field=timezone_field,
            hint="leave the zone out, or write the time without an offset",
        )
    return in_utc


def _bad_time(detail: str, field: str) -> InvalidInput:
    return InvalidInput(
        detail,
        code="invalid_time",
        field=field,
        expected=f"RFC 3339, from {_FIRST_YEAR} to {_LAST_YEAR}",
        hint='such as "2026-12-31T23:59:59Z"',
    )
