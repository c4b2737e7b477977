"""Intake of calendars: the rules as they are stored, or an error that names the member."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from datetime import date, datetime
from typing import Any

from mainspring.domain.errors import InvalidInput
from mainspring.domain.schedules.calendar_days import WEEKDAYS, OpenTimes, seconds_of, weekly_windows
from mainspring.domain.schedules.holiday_sets import countries, country_names
from mainspring.domain.schedules.zones import check_timezone
from mainspring.domain.texts import check_prose, shown
from mainspring.wire.calendars import (
    BlackoutIn,
    CalendarRequest,
    DateSpanIn,
    HolidaysIn,
    HoursIn,
    TimeSpanIn,
)

MOST_DATES = 1000
MOST_BLACKOUTS = 200
_MOST_COUNTRIES = 20
_MOST_HOURS = 24  # parts of a day
_MOST_PARTS = 48  # of a day, when blackouts divide its hours: fires are counted part by part
_LONGEST_DESCRIPTION = 2000
_FIRST_YEAR, _LAST_YEAR = 1900, 9998
_HOURS = 'such as {"from": "09:00", "to": "17:00"}'


def read_calendar(request: CalendarRequest, now: datetime) -> CalendarRequest:
    """The rules in the form in which they are stored. To know whether they ever allow anything takes up to 0.5 s, since
    the holidays are worked out."""
    if request.description is not None:
        check_prose(request.description, "description")
        _check_length(request.description, _LONGEST_DESCRIPTION, "description", "characters")
    rules = CalendarRequest(
        timezone=None if request.timezone is None else check_timezone(request.timezone, "timezone"),
        holidays=_holidays(request.holidays) or None,
        dates=_dates(request.dates or ()) or None,
        weekdays=_weekdays(request.weekdays, "weekdays"),
        hours=_hours(request.hours),
        blackouts=_blackouts(request.blackouts or ()) or None,
        description=request.description,
    )
    windows = weekly_windows(rules)
    most, day = max((len(parts), day) for parts, day in zip(windows, WEEKDAYS, strict=True))
    if most > _MOST_PARTS:
        raise InvalidInput(
            f"hours and blackouts divide {day} into {most} open parts", field=_first_of(rules, "blackouts", "hours"),
            expected=f"at most {_MOST_PARTS} open parts of a day",
            hint="put what is shorter than half an hour into the cron line of the job",
        )  # fmt: skip
    if not any(windows):
        raise _allows_nothing(
            "hours, weekdays and blackouts leave no time of the week", _first_of(rules, "hours", "weekdays")
        )
    if OpenTimes(rules, "UTC").next_opening(int(now.timestamp())) is None:
        raise _allows_nothing("everything from now on is excluded", _first_of(rules, "dates", "blackouts"))
    return rules


def _allows_nothing(detail: str, field: str) -> InvalidInput:
    return InvalidInput(
        f"the calendar allows nothing: {detail}", code="calendar_allows_nothing", field=field,
        hint="leave some time open",
    )  # fmt: skip


def _first_of(rules: CalendarRequest, *fields: str) -> str:
    return next((field for field in fields if getattr(rules, field) is not None), "blackouts")


def _check_length(given: list[object] | str, most: int, field: str, what: str) -> None:
    if len(given) > most:
        raise InvalidInput(f"{field} has {len(given)} {what}", field=field, expected=f"at most {most} {what}")


def _holidays(given: HolidaysIn | list[HolidaysIn] | None) -> list[HolidaysIn]:
    if given is None:
        return []
    if isinstance(given, HolidaysIn):
        return [_country(given, "holidays")]
    _check_length(list(given), _MOST_COUNTRIES, "holidays", "entries")
    return [_country(one, f"holidays[{index}]") for index, one in enumerate(given)]


def _country(given: HolidaysIn, field: str) -> HolidaysIn:
    known, code = countries(), given.country.upper()
    if code not in known:
        names = country_names()
        written = given.country[:100].lower().replace("_", " ")
        close = [name for name in names if name.startswith(written)][:3]
        close = close or difflib.get_close_matches(written, names, n=3, cutoff=0.7)
        near = [names[name] for name in close] or difflib.get_close_matches(code[:100], known, n=3, cutoff=0.5)
        raise InvalidInput(
            f"{shown(given.country)} is not a country with known holidays", code="unknown_country",
            field=f"{field}.country", expected='an ISO 3166 code such as "DE" or "US"', hint=_did_you_mean(near),
        )  # fmt: skip
    if given.subdivision is None:
        return HolidaysIn(code)
    parts = known[code]
    wanted = given.subdivision.upper().removeprefix(f"{code}-")
    for part in parts:
        if part.upper() == wanted:
            return HolidaysIn(code, part)
    near = difflib.get_close_matches(wanted[:100], parts, n=3, cutoff=0.5)
    raise InvalidInput(
        f"{shown(given.subdivision)} is not a subdivision of {code} with known holidays", code="unknown_country",
        field=f"{field}.subdivision", expected=f"one of {', '.join(parts[:60])}" if parts else "none",
        hint=_did_you_mean(near) if near else "leave it out for the whole country",
    )  # fmt: skip


def _did_you_mean(near: list[str]) -> str | None:
    return f"did you mean {' or '.join(repr(one) for one in dict.fromkeys(near))}?" if near else None


def _dates(given: Iterable[str | DateSpanIn]) -> list[str | DateSpanIn]:
    given = list(given)
    _check_length(list(given), MOST_DATES, "dates", "entries")
    found: list[str | DateSpanIn] = []
    for index, one in enumerate(given):
        field = f"dates[{index}]"
        if isinstance(one, str):
            found.append(_date(one, field).isoformat())
            continue
        first, last = _date(one.first, f"{field}.from"), _date(one.last, f"{field}.to")
        if first > last:
            raise _reversed(one.first, one.last, f"{field}.from")
        found.append(DateSpanIn(first.isoformat(), last.isoformat()))
    return found


def _date(text: str, field: str) -> date:
    try:
        found = date.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or not _FIRST_YEAR <= found.year <= _LAST_YEAR:
        raise InvalidInput(
            f"{shown(text)} is not a date", field=field, expected=f"YYYY-MM-DD, from {_FIRST_YEAR} to {_LAST_YEAR}",
            hint='such as "2026-12-24", or {"from": "2026-12-24", "to": "2027-01-01"}',
        )  # fmt: skip
    return found


def _reversed(start: str, end: str, field: str, hint: str = "exchange them") -> InvalidInput:
    return InvalidInput(f"from ({shown(start)}) is not before to ({shown(end)})", field=field, hint=hint)


def _weekdays(given: list[str] | None, field: str) -> list[str] | None:
    """The weekdays in the order of the week. None means all."""
    if given is None:
        return None
    wanted = []
    for index, one in enumerate(given):
        if one.upper() not in WEEKDAYS:
            raise InvalidInput(
                f"{shown(one)} is not a weekday", field=f"{field}[{index}]", expected=", ".join(WEEKDAYS),
                hint=f"did you mean {short}?" if (short := one[:3].upper()) in WEEKDAYS else None,
            )  # fmt: skip
        wanted.append(one.upper())
    if not wanted:
        raise InvalidInput(
            f"{field} is empty", field=field, expected=", ".join(WEEKDAYS), hint="name one, or leave it out"
        )
    return [day for day in WEEKDAYS if day in wanted]


def _hours(given: HoursIn | list[TimeSpanIn] | None) -> HoursIn | list[TimeSpanIn] | None:
    if given is None:
        return None
    if isinstance(given, list):
        return _day_hours(given, "hours")
    by_day: dict[str, Any] = {day.lower(): getattr(given, day.lower()) for day in WEEKDAYS}
    named = {day: hours for day, hours in by_day.items() if hours is not None}
    if given.start is None and given.end is None:
        if not named:
            raise InvalidInput("hours is empty", field="hours", expected=_HOURS, hint="leave it out for whole days")
        read: dict[str, Any] = {
            day: _day_hours(hours if isinstance(hours, list) else [hours], f"hours.{day.upper()}")
            for day, hours in named.items()
        }
        return HoursIn(**read)
    if named:
        raise InvalidInput(
            "hours has from and to, and hours of a weekday", field=f"hours.{next(iter(named)).upper()}",
            hint="give hours for all weekdays, or for each one",
        )  # fmt: skip
    missing = "from" if given.start is None else "to"
    if given.start is None or given.end is None:
        raise InvalidInput(f"hours needs {missing}", field=f"hours.{missing}", expected=_HOURS)
    span = _time_span(TimeSpanIn(given.start, given.end), "hours")
    return HoursIn(start=span.start, end=span.end)


def _day_hours(given: list[TimeSpanIn], field: str) -> list[TimeSpanIn]:
    _check_length(list(given), _MOST_HOURS, field, "entries")
    if not given:
        raise InvalidInput(f"{field} is empty", field=field, expected=_HOURS, hint="leave it out")
    single = len(given) == 1
    return [_time_span(one, field if single else f"{field}[{index}]") for index, one in enumerate(given)]


def _time_span(given: TimeSpanIn, field: str) -> TimeSpanIn:
    start, end = _time(given.start, f"{field}.from"), _time(given.end, f"{field}.to")
    if start >= end:
        raise _reversed(given.start, given.end, f"{field}.from", 'split it at midnight: "24:00" is the end of a day')
    return TimeSpanIn(_time_text(start), _time_text(end))


def _time(text: str, field: str) -> int:
    try:
        return seconds_of(text)
    except ValueError:
        raise InvalidInput(
            f"{shown(text)} is not a time of day", field=field, expected="HH:MM, from 00:00 to 24:00",
            hint='such as "09:00"',
        ) from None  # fmt: skip


def _time_text(seconds: int) -> str:
    minutes, second = divmod(seconds, 60)
    text = f"{minutes // 60:02}:{minutes % 60:02}"
    return f"{text}:{second:02}" if second else text


def _blackouts(given: Iterable[BlackoutIn]) -> list[BlackoutIn]:
    given = list(given)
    _check_length(list(given), MOST_BLACKOUTS, "blackouts", "entries")
    return [_blackout(one, f"blackouts[{index}]") for index, one in enumerate(given)]


def _blackout(given: BlackoutIn, field: str) -> BlackoutIn:
    if given.days is not None:
        span = _time_span(TimeSpanIn(given.start, given.end), field)
        return BlackoutIn(span.start, span.end, _weekdays(given.days, f"{field}.days"))
    start, end = _wall_time(given.start, f"{field}.from"), _wall_time(given.end, f"{field}.to")
    if start >= end:
        raise _reversed(given.start, given.end, f"{field}.from")
    return BlackoutIn(start.isoformat(), end.isoformat())


def _wall_time(text: str, field: str) -> datetime:
    hint = 'such as "2026-12-20T00:00"; for times of every week name the days: {"days": ["SUN"], "from": "02:00", ...}'
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is not None and found.tzinfo is not None:
        raise InvalidInput(
            f"{shown(text)} has an offset", field=field, expected="a time on the clock of the calendar's timezone",
            hint="leave the offset out",
        )  # fmt: skip
    if found is None or not _FIRST_YEAR <= found.year <= _LAST_YEAR or found.microsecond:
        raise InvalidInput(f"{shown(text)} is not a date and a time", field=field, expected="whole seconds", hint=hint)
    return found
