"""The wall times of a rule, a year at a time.

A year of a rule is the list of its days, and what times of the day they have. Which days match BYMONTH, BYDAY and the
like depends on the kind of the year alone: whether it is a leap year, and its first weekday. So the days of a kind of
year are worked out once and kept. Work is bounded by the number of years that are evaluated, not by the rule.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from datetime import date, timedelta
from functools import lru_cache
from itertools import accumulate, compress, groupby

import msgspec

from mainspring.domain.schedules.rule import Frequency, RecurrenceRule

DAY = 86400
_EPOCH = date(1970, 1, 1).toordinal()
_MINUTES = 1440


class RuleOfDays(msgspec.Struct, frozen=True):
    """Which days of a year match, apart from the interval."""

    by_month: tuple[int, ...]
    by_week: tuple[int, ...]
    by_year_day: tuple[int, ...]
    by_month_day: tuple[int, ...]
    by_day: tuple[tuple[int, int], ...]
    in_month: bool  # a numbered weekday is counted within its month
    week_start: int


class Resolved(msgspec.Struct, frozen=True):
    """A rule in which all that its text leaves open is filled in. `phase`: which of `interval` periods has fires."""

    freq: Frequency
    interval: int
    phase: int
    days: RuleOfDays
    hours: tuple[int, ...]
    minutes: tuple[int, ...]
    seconds: tuple[int, ...]
    positions: tuple[int, ...]


def resolve(rule: RecurrenceRule, wall: int, *, exact: bool) -> Resolved:
    """The rule from the wall time `wall` on (in seconds since 1970). What the rule does not say is taken from `wall`.
    Unless `exact`, minutes and seconds below a given BYHOUR or BYMINUTE are 0."""
    day, time = divmod(wall, DAY)
    start = _date(day)
    month, month_day, week_day = rule.by_month, rule.by_month_day, rule.by_day
    if not (rule.by_week or rule.by_year_day or month_day or week_day):
        if rule.freq is Frequency.YEARLY:
            month, month_day = month or (start.month,), (start.day,)
        elif rule.freq is Frequency.MONTHLY:
            month_day = (start.day,)
        elif rule.freq is Frequency.WEEKLY:
            week_day = ((0, start.weekday()),)
    if rule.by_week and not (rule.by_year_day or month_day or week_day):
        week_day = ((0, start.weekday()),)
    minute, second = time // 60 % 60, time % 60
    if not exact and rule.by_hour:
        minute, second = 0, 0
    elif not exact and rule.by_minute:
        second = 0
    phases = {
        Frequency.YEARLY: start.year,
        Frequency.MONTHLY: start.year * 12 + start.month - 1,
        Frequency.WEEKLY: _week(day, rule.week_start),
        Frequency.DAILY: day,
        Frequency.HOURLY: wall // 3600,
        Frequency.MINUTELY: wall // 60,
    }
    return Resolved(
        freq=rule.freq,
        interval=rule.interval,
        phase=phases[rule.freq] % rule.interval,
        days=RuleOfDays(
            by_month=month,
            by_week=rule.by_week,
            by_year_day=rule.by_year_day,
            by_month_day=month_day,
            by_day=week_day,
            in_month=rule.freq is Frequency.MONTHLY or bool(month),
            week_start=rule.week_start,
        ),
        hours=rule.by_hour or ((time // 3600,) if rule.freq < Frequency.HOURLY else tuple(range(24))),
        minutes=rule.by_minute or ((minute,) if rule.freq < Frequency.MINUTELY else tuple(range(60))),
        seconds=rule.by_second or (second,),
        positions=rule.by_position,
    )


class Times(msgspec.Struct, frozen=True, eq=False):
    """Times of a day in seconds: each of `outer` plus each of `inner`, which is smaller than any step of `outer`."""

    outer: Sequence[int]
    inner: Sequence[int]

    def __len__(self) -> int:
        return len(self.outer) * len(self.inner)

    def at(self, index: int) -> int:
        place, rest = divmod(index, len(self.inner))
        return self.outer[place] + self.inner[rest]

    def through(self, time: int) -> int:
        """How many are not after `time`."""
        place = bisect_right(self.outer, time) - 1
        return 0 if place < 0 else place * len(self.inner) + bisect_right(self.inner, time - self.outer[place])

    def picked(self, positions: Iterable[int]) -> Times:
        """The items at these positions. Positions count from 1, or from the end with -1."""
        size = len(self)
        places = {position - 1 if position > 0 else size + position for position in positions}
        return Times(array("i", [self.at(place) for place in sorted(places) if 0 <= place < size]), (0,))


class RuleYear:
    """The wall times of a rule in a year. `days`: days since 1970 that have times. `before`: how many times are before
    each of them, and in the year. `times_of`: the times of the day at a place of `days`."""

    def __init__(self, days: Sequence[int], before: Sequence[int], times_of: Callable[[int], Times]) -> None:
        self._days = days
        self._before = before
        self._times_of = times_of
        self.total = before[-1]

    def through(self, wall: int) -> int:
        """How many are not after `wall`."""
        day, time = divmod(wall, DAY)
        place = bisect_left(self._days, day)
        if place == len(self._days) or self._days[place] != day:
            return self._before[place]
        return self._before[place] + self._times_of(place).through(time)

    def at(self, index: int) -> int:
        place = bisect_right(self._before, index) - 1
        return self._days[place] * DAY + self._times_of(place).at(index - self._before[place])


@lru_cache(maxsize=512)  # each takes up to 50 KB
def year_of_rule(rule: Resolved, year: int) -> RuleYear:
    freq, days = rule.freq, _matching(rule, year)
    if freq in (Frequency.HOURLY, Frequency.MINUTELY):
        return _in_steps(rule, days)
    times = _times(rule)
    if not rule.positions:
        return _all_alike(days, times)
    if freq is Frequency.DAILY:
        return _all_alike(days, times.picked(rule.positions))
    if freq is Frequency.WEEKLY:
        # A week may begin in the year before, or end in the year after.
        first, last = _number(date(year, 1, 1)), _number(date(year, 12, 31))
        days = [*_matching(rule, year - 1)[-7:], *days, *_matching(rule, year + 1)[:7]]
        periods = _grouped(days, lambda day: _week(day, rule.days.week_start))
        return _picked([(day, time) for day, time in _pick(periods, times, rule.positions) if first <= day <= last])
    if freq is Frequency.MONTHLY:
        starts = _month_starts(year)
        return _picked(_pick(_grouped(days, lambda day: bisect_right(starts, day)), times, rule.positions))
    return _picked(_pick([days] if days else [], times, rule.positions))


@lru_cache(maxsize=256)
def _times_of_day(hours: tuple[int, ...], minutes: tuple[int, ...], seconds: tuple[int, ...]) -> Times:
    return Times(array("i", [hour * 3600 + minute * 60 for hour in hours for minute in minutes]), seconds)


def _times(rule: Resolved) -> Times:
    return _times_of_day(rule.hours, rule.minutes, rule.seconds)


def _grouped(days: Sequence[int], key: Callable[[int], int]) -> list[list[int]]:
    return [list(group) for _, group in groupby(days, key)]


def _pick(periods: Iterable[Sequence[int]], times: Times, positions: Sequence[int]) -> list[tuple[int, int]]:
    """The times at these positions of each period, as day and time."""
    found = []
    for days in periods:
        size = len(days) * len(times)
        places = {position - 1 if position > 0 else size + position for position in positions}
        for place in sorted(places):
            if 0 <= place < size:
                index, rest = divmod(place, len(times))
                found.append((days[index], times.at(rest)))
    return found


def _picked(found: Sequence[tuple[int, int]]) -> RuleYear:
    by_day = [(day, [time for _, time in group]) for day, group in groupby(found, lambda one: one[0])]
    before = list(accumulate((len(times) for _, times in by_day), initial=0))
    return RuleYear([day for day, _ in by_day], before, lambda place: Times(by_day[place][1], (0,)))


def _all_alike(days: Sequence[int], times: Times) -> RuleYear:
    size = len(times)
    if not size:
        days, size = [], 1
    return RuleYear(days, range(0, size * len(days) + 1, size), lambda _: times)


def _in_steps(rule: Resolved, days: Sequence[int]) -> RuleYear:
    """HOURLY and MINUTELY: the times of a day depend on where the interval stands at its midnight."""
    if rule.interval == 1:
        return _all_alike(days, _steps(rule, 0))
    a_day, times_from = _times_from(rule)
    interval, phase = rule.interval, rule.phase
    sizes = [times_from.get((phase - day * a_day) % interval, 0) for day in days]
    found = array("i", days if all(sizes) else compress(days, sizes))
    counts = array("i", accumulate(filter(None, sizes), initial=0))
    return RuleYear(found, counts, lambda place: _steps(rule, (phase - found[place] * a_day) % interval))


@lru_cache(maxsize=256)
def _times_from(rule: Resolved) -> tuple[int, dict[int, int]]:
    """How many hours or minutes a day has, and how many times of the rule, by its first hour or minute of the interval:
    a rule that began in 1900 has 46,000 days, and these are counted once."""
    allowed, size = _allowed(rule)
    firsts = range(min(rule.interval, len(allowed)))
    return len(allowed), {first: allowed[first :: rule.interval].count(1) * size for first in firsts}


def _allowed(rule: Resolved) -> tuple[bytes, int]:
    """Which hours or minutes of a day are allowed, and how many times each of them has."""
    if rule.freq is Frequency.HOURLY:
        within = _times_of_day((0,), rule.minutes, rule.seconds)
        size = len(within.picked(rule.positions)) if rule.positions else len(within)
        return (bytes(hour in rule.hours for hour in range(24)), size) if size else (bytes(24), 0)
    seconds = Times((0,), rule.seconds)
    size = len(seconds.picked(rule.positions)) if rule.positions else len(seconds)
    hours, minutes = set(rule.hours), set(rule.minutes)
    if not size:
        return bytes(_MINUTES), 0
    return bytes(minute // 60 in hours and minute % 60 in minutes for minute in range(_MINUTES)), size


@lru_cache(maxsize=512)  # each takes up to 6 KB
def _steps(rule: Resolved, first: int) -> Times:
    """The times of a day whose first hour or minute of the interval is `first`."""
    if rule.freq is Frequency.HOURLY:
        hours = tuple(hour for hour in range(first, 24, rule.interval) if hour in rule.hours)
        within = _times_of_day((0,), rule.minutes, rule.seconds)
        if not rule.positions:
            return _times_of_day(hours, rule.minutes, rule.seconds)
        picked = within.picked(rule.positions)
        return Times(array("i", [hour * 3600 + time for hour in hours for time in picked.outer]), (0,))
    seconds: Sequence[int] = rule.seconds
    if rule.positions:
        seconds = Times((0,), seconds).picked(rule.positions).outer
    if not seconds:
        return Times((), (0,))
    if rule.interval == 1:
        return _times_of_day(rule.hours, rule.minutes, tuple(seconds))
    outer = [
        minute * 60
        for minute in range(first, _MINUTES, rule.interval)
        if minute // 60 in rule.hours and minute % 60 in rule.minutes
    ]
    return Times(array("i", outer), seconds)


def _matching(rule: Resolved, year: int) -> Sequence[int]:
    """The days of a year that match, as days since 1970."""
    if rule.freq is Frequency.YEARLY and (year - rule.phase) % rule.interval:
        return []
    first = _number(date(year, 1, 1))
    leaps = 0
    if rule.days.by_week:
        leaps = (2 if _is_leap(year - 1) else 0) + (4 if _is_leap(year + 1) else 0)
    days: list[int] = [first + day for day in _days_of_kind(rule.days, (first + 3) % 7, _is_leap(year), leaps)]
    interval, phase = rule.interval, rule.phase
    if interval == 1:
        return days
    if rule.freq is Frequency.MONTHLY:
        starts = [*_month_starts(year), _number(date(year, 12, 31)) + 1]
        months = [month for month in range(12) if (year * 12 + month - phase) % interval == 0]
        return [
            day
            for month in months
            for day in days[bisect_left(days, starts[month]) : bisect_left(days, starts[month + 1])]
        ]
    if rule.freq is Frequency.WEEKLY:
        shift = 3 - rule.days.week_start
        return [day for day in days if ((day + shift) // 7 - phase) % interval == 0]
    if rule.freq is Frequency.DAILY:
        return [day for day in days if (day - phase) % interval == 0]
    return days


@lru_cache(maxsize=2048)
def _days_of_kind(rule: RuleOfDays, first_weekday: int, leap: bool, leaps: int) -> tuple[int, ...]:
    """The days, from 0, of a year of this kind. `leaps`: whether the year before (2) and after (4) are leap years."""
    lengths = [31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    size = sum(lengths)
    plain = {weekday for number, weekday in rule.by_day if not number}
    numbered = {(number, weekday) for number, weekday in rule.by_day if number}
    found = []
    day = -1
    for month, length in enumerate(lengths, 1):
        for month_day in range(1, length + 1):
            day += 1
            if rule.by_month and month not in rule.by_month:
                continue
            if (
                rule.by_month_day
                and month_day not in rule.by_month_day
                and month_day - length - 1 not in rule.by_month_day
            ):
                continue
            if rule.by_year_day and day + 1 not in rule.by_year_day and day - size not in rule.by_year_day:
                continue
            weekday = (first_weekday + day) % 7
            if rule.by_day and weekday not in plain:
                before, after = (month_day - 1, length - month_day) if rule.in_month else (day, size - 1 - day)
                if (before // 7 + 1, weekday) not in numbered and (-(after // 7) - 1, weekday) not in numbered:
                    continue
            if rule.by_week and not _week_matches(rule, day, first_weekday, size, leaps):
                continue
            found.append(day)
    return tuple(found)


def _week_matches(rule: RuleOfDays, day: int, first_weekday: int, size: int, leaps: int) -> bool:
    """Whether the week of a day has one of the numbers. The first week of a year has at least four days in it."""
    start = _first_week(first_weekday, rule.week_start)
    if day < start:
        before = 366 if leaps & 2 else 365
        start, size = _first_week(first_weekday - before, rule.week_start) - before, before
        following = _first_week(first_weekday, rule.week_start)
    else:
        following = size + _first_week(first_weekday + size, rule.week_start)
        if day >= following:
            after = 366 if leaps & 4 else 365
            start = following
            following = size + after + _first_week(first_weekday + size + after, rule.week_start)
    number, weeks = (day - start) // 7 + 1, (following - start) // 7
    return number in rule.by_week or number - weeks - 1 in rule.by_week


def _first_week(first_weekday: int, week_start: int) -> int:
    """The day, from the first of January, on which the first week of a year begins."""
    lead = (first_weekday - week_start) % 7
    return -lead if lead <= 3 else 7 - lead


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _month_starts(year: int) -> list[int]:
    return [_number(date(year, month, 1)) for month in range(1, 13)]


def _week(day: int, week_start: int) -> int:
    return (day + 3 - week_start) // 7  # 1970 began on a Thursday


def _number(day: date) -> int:
    return day.toordinal() - _EPOCH


def _date(number: int) -> date:
    return date.fromordinal(_EPOCH) + timedelta(days=number)
