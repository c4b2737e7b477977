"""What rules of a calendar do to a year, and to the fires of the jobs that use it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta
from itertools import islice, takewhile

from mainspring.domain.schedules.calendar_days import OpenTimes, weekly_windows
from mainspring.domain.schedules.fires import fires
from mainspring.domain.schedules.holiday_sets import holiday_names
from mainspring.domain.schedules.schedule import Schedule
from mainspring.wire.calendars import CalendarRequest, ClosedDay, HolidaysIn

MOST_FIRES = 1000  # of a job
_CLOSED = "blackout"


def closed_days(rules: CalendarRequest, year: int) -> list[ClosedDay]:
    """The days of a year that have no open time, and those that a blackout divides. Without a zone: in UTC."""
    times, windows, names = OpenTimes(rules, "UTC"), weekly_windows(rules), _holidays(rules, year)
    dates = [(one, one) if isinstance(one, str) else (one.first, one.last) for one in rules.dates or ()]
    divided = set(_days_of_blackouts(rules, year))
    found = []
    for ordinal in range(date(year, 1, 1).toordinal(), date(year, 12, 31).toordinal() + 1):
        day = date.fromordinal(ordinal)
        text = day.isoformat()
        if day in names:
            found.append(ClosedDay(text, "holiday", names[day]))
        elif any(first <= text <= last for first, last in dates):
            found.append(ClosedDay(text, "date"))
        elif not windows[day.weekday()]:
            found.append(ClosedDay(text, "weekday"))
        elif day in divided:
            opens = times.next_opening(times.day_start(ordinal))
            found.append(ClosedDay(text, _CLOSED, partly=opens is not None and opens < times.day_start(ordinal + 1)))
    return found


def _holidays(rules: CalendarRequest, year: int) -> dict[date, str]:
    given = rules.holidays
    found: dict[date, str] = {}
    for one in [given] if isinstance(given, HolidaysIn) else given or []:
        found = {**holiday_names(one.country, one.subdivision, year), **found}
    return found


def _days_of_blackouts(rules: CalendarRequest, year: int) -> Iterator[date]:
    for one in rules.blackouts or ():
        if one.days is None:
            first = max(datetime.fromisoformat(one.start).date(), date(year, 1, 1))
            last = min((datetime.fromisoformat(one.end) - timedelta(seconds=1)).date(), date(year, 12, 31))
            yield from map(date.fromordinal, range(first.toordinal(), last.toordinal() + 1))


def changed_fires(
    before: Schedule, after: Schedule, start: datetime, until: datetime
) -> tuple[list[datetime], list[datetime], datetime]:
    """The fires that go and those that come, after `start`, and the time up to which they were compared."""
    old, new = _some(fires(before, start), until), _some(fires(after, start), until)
    horizon = min([until, *(some[-1] for some in (old, new) if len(some) > MOST_FIRES)])
    was, will = ({one for one in some if one <= horizon} for some in (old, new))
    return sorted(was - will), sorted(will - was), horizon


def _some(found: Iterable[datetime], until: datetime) -> list[datetime]:
    return list(islice(takewhile(lambda moment: moment <= until, found), MOST_FIRES + 1))
