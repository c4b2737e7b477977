"""A reference implementation of cron that checks every instant. Slow and simple. Shares no code with the product.

`scan` walks real time and asks of each instant whether its wall time matches. Debian cron's rule for the changes of
the clock is written out as it reads: jobs at a fixed time skip the second of two equal wall times, and run at the
first instant after a gap if the gap swallowed one of theirs; all others follow real time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")

# Zones and dates of offset changes: by one hour, half an hour, two hours, at midnight, and by a whole day.
CHANGES = [
    ("Europe/Berlin", datetime(2026, 3, 29, 1, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 10, 25, 1, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 3, 8, 7, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 11, 1, 6, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 15, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 15, 30, tzinfo=UTC)),
    ("America/Sao_Paulo", datetime(2018, 2, 18, 2, tzinfo=UTC)),
    ("America/Sao_Paulo", datetime(2018, 11, 4, 3, tzinfo=UTC)),
    ("Africa/Cairo", datetime(2024, 4, 25, 22, tzinfo=UTC)),
    ("Africa/Cairo", datetime(2024, 10, 31, 21, tzinfo=UTC)),
    ("Africa/Casablanca", datetime(2026, 2, 15, 2, tzinfo=UTC)),
    ("Antarctica/Troll", datetime(2026, 3, 29, 1, tzinfo=UTC)),
    ("Antarctica/Troll", datetime(2026, 10, 25, 1, tzinfo=UTC)),
    ("Asia/Pyongyang", datetime(2018, 5, 4, 15, tzinfo=UTC)),
    ("America/Caracas", datetime(2016, 5, 1, 7, tzinfo=UTC)),
    ("Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC)),
]
STEADY_ZONES = ["UTC", "Asia/Kolkata", "Asia/Kathmandu", "Asia/Tokyo", "Pacific/Kiritimati", "America/Phoenix"]


class Matcher:
    """The wall times that match an expression of 5 or 6 fields, with `*`, lists, ranges, steps and names."""

    def __init__(self, expression: str) -> None:
        fields = expression.upper().split()
        self.fixed_time = len(fields) == 5 and not fields[0].startswith("*") and not fields[1].startswith("*")
        if len(fields) == 5:
            fields = ["0", *fields]
        second, minute, hour, day, month, weekday = fields
        self.either_day = not day.startswith("*") and not weekday.startswith("*")
        self.seconds = _values(second, 0, 59)
        self.minutes = _values(minute, 0, 59)
        self.hours = _values(hour, 0, 23)
        self.days = _values(day, 1, 31)
        self.months = _values(month, 1, 12, MONTHS)
        self.weekdays = {value % 7 for value in _values(weekday, 0, 7, WEEKDAYS)}

    def matches_day(self, day: datetime) -> bool:
        by_date, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return day.month in self.months and (by_date or by_weekday if self.either_day else by_date and by_weekday)

    def matches(self, wall: datetime) -> bool:
        return (
            wall.second in self.seconds
            and wall.minute in self.minutes
            and wall.hour in self.hours
            and self.matches_day(wall)
        )


def _values(field: str, low: int, high: int, names: tuple[str, ...] = ()) -> set[int]:
    first = 1 if low == 1 else 0  # months count from 1, weekdays from 0

    def number(word: str) -> int:
        return names.index(word) + first if word in names else int(word)

    values: set[int] = set()
    for term in field.split(","):
        body, _, step = term.partition("/")
        start, end = (low, high) if body == "*" else (number(word) for word in (body.split("-") * 2)[:2])
        if step and body.isalnum():
            end = high
        values.update(range(start, end + 1, int(step or 1)))
    return values


def scan(expression: str, zone: str, after: datetime, until: datetime) -> list[datetime]:
    """All fires in (after, until]. Checks every minute, or every second for six fields."""
    matcher, place = Matcher(expression), ZoneInfo(zone)
    step = timedelta(seconds=1 if len(expression.split()) == 6 else 60)
    moment = after.replace(microsecond=0, second=after.second if step.seconds == 1 else 0)
    before = moment.astimezone(place)
    found = []
    while (moment := moment + step) <= until:
        here = moment.astimezone(place)
        fires = matcher.matches(here)
        if matcher.fixed_time:
            swallowed = _walls_between(before, here, step)
            fires = (fires and here.fold == 0) or any(matcher.matches(wall) for wall in swallowed)
        if fires:
            found.append(moment)
        before = here
    return found


def _walls_between(before: datetime, here: datetime, step: timedelta) -> list[datetime]:
    wall, end = before.replace(tzinfo=None) + step, here.replace(tzinfo=None)
    count = max(0, int((end - wall) / step))
    return [wall + index * step for index in range(count)]


def days(expression: str, after: datetime, count: int) -> list[datetime]:
    """The matching midnights (UTC) of the next days, for expressions that fire at 00:00."""
    matcher, day, found = Matcher(expression), after.replace(hour=0, minute=0, second=0, microsecond=0), []
    for _ in range(366 * 9):
        day += timedelta(days=1)
        if matcher.matches_day(day):
            found.append(day)
            if len(found) == count:
                break
    return found


def _field(low: int, high: int, names: tuple[str, ...] = ()) -> st.SearchStrategy[str]:
    words = st.integers(low, high).map(str) | (st.sampled_from(names) if names else st.nothing())
    number = st.integers(low, high)
    spans = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    steps = st.integers(1, high)
    terms = st.one_of(
        words,
        spans,
        st.builds("{}/{}".format, spans, steps),
        st.builds("{}/{}".format, number, steps),
        st.builds("*/{}".format, steps),
    )
    return st.just("*") | terms | st.lists(terms, min_size=2, max_size=3).map(",".join)


minutes, hours = _field(0, 59), _field(0, 23)
days_of_month, months, weekdays = _field(1, 31), _field(1, 12, MONTHS), _field(0, 7, WEEKDAYS)
# Mostly every day, so that a window of one or two days contains fires.
_often_every_day = st.sampled_from(["* * *"] * 4 + ["*/2 * *", "* * */2", "1-28 * MON-SAT"])
five_fields = st.builds("{} {} {}".format, minutes, hours, _often_every_day)
six_fields = st.builds("{} {}".format, _field(0, 59), five_fields)
day_fields = st.builds("0 0 {} {} {}".format, days_of_month, months, weekdays)
