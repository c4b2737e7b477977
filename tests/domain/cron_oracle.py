"""A reference implementation of cron that checks every instant. Slow and simple. Shares no code with the product.

`scan` walks real time and asks of each instant whether its wall time matches. What happens when clocks are moved is
written out as it reads. gap: at the first instant after skipped wall times, `shift` fires if one of them matches.
overlap: an instant whose wall time occurs twice fires if it is the `first` or the `last` of the two; or `both` fire. By
default as Debian's cron: jobs at a fixed time shift, and fire the first time; all others follow real time.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
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
    ("Europe/Dublin", datetime(2026, 3, 29, 1, tzinfo=UTC)),
    ("Europe/Dublin", datetime(2026, 10, 25, 1, tzinfo=UTC)),
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


Policy = tuple[str | None, str | None]
GAPS = (None, "shift", "skip")
OVERLAPS = (None, "first", "last", "both")


class Matcher:
    """The wall times that match an expression of 5 or 6 fields: `*`, lists, ranges, steps, names, L, LW, 5L, MON#2."""

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
        self.marks = {term for term in day.split(",") if term in ("L", "LW")}
        self.days = _values(",".join(term for term in day.split(",") if term not in ("L", "LW")), 1, 31)
        self.months = _values(month, 1, 12, MONTHS)
        special = [term for term in weekday.split(",") if "#" in term or term.endswith("L")]
        plain = ",".join(term for term in weekday.split(",") if term not in special)
        self.weekdays = {value % 7 for value in _values(plain, 0, 7, WEEKDAYS)}
        self.special_weekdays = {_special(term) for term in special}
        self._known_days: dict[tuple[int, int, int], bool] = {}

    def matches_day(self, day: datetime) -> bool:
        date = (day.year, day.month, day.day)
        if date not in self._known_days:
            self._known_days[date] = self._matches_day(day)
        return self._known_days[date]

    def _matches_day(self, day: datetime) -> bool:
        weekday, week = day.isoweekday() % 7, timedelta(days=7)
        by_date = (
            day.day in self.days
            or ("L" in self.marks and _tomorrow(day).month != day.month)
            or ("LW" in self.marks and _is_last_workday(day))
        )
        nth = len([1 for weeks in range(1, 5) if (day - weeks * week).month == day.month]) + 1
        is_last = (day + week).month != day.month
        by_weekday = (
            weekday in self.weekdays
            or (weekday, str(nth)) in self.special_weekdays
            or (is_last and (weekday, "L") in self.special_weekdays)
        )
        return day.month in self.months and (by_date or by_weekday if self.either_day else by_date and by_weekday)

    def matches(self, wall: datetime) -> bool:
        return (
            wall.second in self.seconds
            and wall.minute in self.minutes
            and wall.hour in self.hours
            and self.matches_day(wall)
        )


def _tomorrow(day: datetime) -> datetime:
    return day + timedelta(days=1)


def _is_last_workday(day: datetime) -> bool:
    later = _tomorrow(day)
    while later.month == day.month:
        if later.isoweekday() < 6:
            return False
        later = _tomorrow(later)
    return day.isoweekday() < 6


def _special(term: str) -> tuple[int, str]:
    name, nth = term.split("#") if "#" in term else (term[:-1], "L")
    return (WEEKDAYS.index(name) if name in WEEKDAYS else int(name) % 7), nth


def _values(field: str, low: int, high: int, names: tuple[str, ...] = ()) -> set[int]:
    first = 1 if low == 1 else 0  # months count from 1, weekdays from 0

    def number(word: str) -> int:
        return names.index(word) + first if word in names else int(word)

    values: set[int] = set()
    for term in field.split(",") if field else ():
        body, _, step = term.partition("/")
        start, end = (low, high) if body == "*" else (number(word) for word in (body.split("-") * 2)[:2])
        if step and body.isalnum():
            end = high
        values.update(range(start, end + 1, int(step or 1)))
    return values


class Instants:
    """Every minute (or second) of a stretch of real time, with its wall time, and what clock changes do to it."""

    def __init__(self, zone: str, after: datetime, until: datetime, step: timedelta) -> None:
        place = ZoneInfo(zone)
        moment = after.replace(microsecond=0, second=after.second if step.seconds == 1 else 0)
        before = moment.astimezone(place)
        self.instants: list[tuple[datetime, datetime]] = []
        self.twice: dict[datetime, str] = {}  # which of two equal wall times it is
        self.swallowed: dict[datetime, list[datetime]] = {}
        while (moment := moment + step) <= until:
            here = moment.astimezone(place)
            self.instants.append((moment, here.replace(tzinfo=None, fold=0)))
            if here.fold == 1:
                self.twice[moment] = "last"
            elif here.replace(fold=1).utcoffset() != here.utcoffset():
                self.twice[moment] = "first"
            if here.replace(tzinfo=None) - before.replace(tzinfo=None) > step:
                self.swallowed[moment] = _walls_between(before, here, step)
            before = here

    def policies(self, matcher: Matcher, policies: Iterable[Policy]) -> dict[Policy, list[datetime]]:
        """The fires under each of the policies. None means the default."""
        matching = [moment for moment, wall in self.instants if matcher.matches(wall)]
        shifted = [at for at, walls in self.swallowed.items() if any(matcher.matches(wall) for wall in walls)]
        found = {}
        for gap, overlap in policies:
            kept = overlap or ("first" if matcher.fixed_time else "both")
            fires = [at for at in matching if kept == "both" or self.twice.get(at, kept) == kept]
            if (gap or ("shift" if matcher.fixed_time else "skip")) == "shift":
                fires = sorted({*fires, *shifted})
            found[gap, overlap] = fires
        return found


@lru_cache(maxsize=256)
def _block(zone: str, begin: datetime, length: timedelta, step: timedelta) -> Instants:
    return Instants(zone, begin - step, begin + length - step, step)


def scan(
    expression: str, zone: str, after: datetime, until: datetime, gap: str | None = None, overlap: str | None = None
) -> list[datetime]:
    """All fires in (after, until]. Checks every minute, or every second for six fields."""
    matcher, found = Matcher(expression), []
    seconds = len(expression.split()) == 6
    step, length = (
        (timedelta(seconds=1), timedelta(minutes=10)) if seconds else (timedelta(minutes=1), timedelta(days=1))
    )
    begin = after - (after - datetime(2000, 1, 1, tzinfo=UTC)) % length
    while begin <= until:
        fires = _block(zone, begin, length, step).policies(matcher, [(gap, overlap)])[gap, overlap]
        found += [moment for moment in fires if after < moment <= until]
        begin += length
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
day_fields = st.builds(
    "0 0 {} {} {}".format,
    days_of_month | st.sampled_from(["L", "LW", "LW,L,3"]),
    months,
    weekdays | st.sampled_from(["5L", "MON#1", "2#5", "0L,7#2", "SAT#3,1"]),
)
policies = st.tuples(st.sampled_from(GAPS), st.sampled_from(OVERLAPS))
