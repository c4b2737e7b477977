"""The fires of a cron expression on a clock without offset changes.

Times are seconds since 1970 on that clock. A day matches by its month's shape: there are 28 (28 to 31 days, and the
weekday of the first). The matching days of a shape are worked out once, as bits. So the next fire is found month by
month, also one that is 40 years away, and days are counted without evaluating each.
"""

from __future__ import annotations

from calendar import monthrange
from datetime import date
from functools import lru_cache

from mainspring.domain.schedules.cron_fields import (
    DAY_OF_MONTH,
    DAY_OF_WEEK,
    HOUR,
    MINUTE,
    MONTH,
    SECOND,
    CronError,
    FieldValues,
    field_values,
)

DAY = 86400
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class DayRule:
    """The days of a month that match: those of two fields, and whether a day must match both or one of them."""

    def __init__(self, of_month: FieldValues, of_week: FieldValues, both: bool) -> None:
        self.of_month, self.of_week, self.both = of_month, of_week, both
        self._bits: dict[tuple[int, int], int] = {}
        self._occurs: dict[int, bool] = {}

    def bits(self, weekday: int, length: int) -> int:
        """The matching days of a month with `length` days that begins with `weekday` (Monday is 0)."""
        shape = (weekday, length)
        found = self._bits.get(shape)
        if found is None:
            found = sum(1 << day for day in range(1, length + 1) if self._matches(day, weekday, length))
            self._bits[shape] = found
        return found

    def occurs_in(self, months: FieldValues) -> bool:
        """Whether a day of these months matches in any year."""
        found = self._occurs.get(months.bits)
        if found is None:
            found = self._occurs[months.bits] = any(self._occurs_in(month) for month in months.numbers)
        return found

    def _occurs_in(self, month: int) -> bool:
        # The first of a month can be any weekday, also in a leap year.
        lengths = (28, 29) if month == 2 else (_LENGTHS[month],)
        return any(self.bits(weekday, length) for length in lengths for weekday in range(7))

    def _matches(self, day: int, first: int, length: int) -> bool:
        weekday = (first + day) % 7  # Sunday is 0
        last_weekday = length - max(0, (first + length - 1) % 7 - 4)
        by_month = (
            day in self.of_month
            or (self.of_month.last_day and day == length)
            or (self.of_month.last_weekday and day == last_weekday)
        )
        nth = self.of_week.nth
        by_week = (
            weekday in self.of_week or (weekday, (day + 6) // 7) in nth or ((weekday, 0) in nth and day + 7 > length)
        )
        return (by_month and by_week) if self.both else (by_month or by_week)


@lru_cache(maxsize=4096)
def _day_rule(of_month: str, of_week: str) -> DayRule:
    # As in Debian's cron: with a star at the start of either field a day must match both.
    both = of_month.startswith("*") or of_week.startswith("*")
    return DayRule(field_values(DAY_OF_MONTH, of_month), field_values(DAY_OF_WEEK, of_week), both)


class WallClock:
    """A parsed expression of 5 or 6 fields without `H`. Raises CronError.

    fixed_time: as in Debian's cron, the line has five fields, and neither minute nor hour begins with `*`."""

    __slots__ = (
        "_a_day",
        "_an_hour",
        "_first",
        "days",
        "fixed_time",
        "hours",
        "minutes",
        "months",
        "occurs",
        "seconds",
    )

    def __init__(self, expression: str) -> None:
        fields = expression.upper().split()
        self.fixed_time = len(fields) == 5 and not fields[0].startswith("*") and not fields[1].startswith("*")
        if len(fields) == 5:
            fields = ["0", *fields]
        if len(fields) != 6:
            raise CronError("Wrong number of fields")
        self.seconds = field_values(SECOND, fields[SECOND])
        self.minutes = field_values(MINUTE, fields[MINUTE])
        self.hours = field_values(HOUR, fields[HOUR])
        self.months = field_values(MONTH, fields[MONTH])
        self.days = _day_rule(fields[DAY_OF_MONTH], fields[DAY_OF_WEEK])
        self.occurs = self.days.occurs_in(self.months)
        self._an_hour = self.minutes.bits.bit_count() * self.seconds.bits.bit_count()
        self._a_day = self.hours.bits.bit_count() * self._an_hour
        self._first = _lowest(self.hours.bits) * 3600 + _lowest(self.minutes.bits) * 60 + _lowest(self.seconds.bits)

    def next(self, after: int) -> int | None:
        """The first fire strictly after `after`. None if there is none up to the year 9999."""
        day, second = divmod(after + 1, DAY)
        here = date.fromordinal(_EPOCH_DAY + day)
        if self._month(here.year, here.month) >> here.day & 1:
            time = self._time_from(second)
            if time is not None:
                return day * DAY + time
        following = self._day_after(here)
        return None if following is None else (following - _EPOCH_DAY) * DAY + self._first

    def count(self, after: int, until: int) -> int:
        """How many fires are in (after, until]."""
        if until <= after:
            return 0
        (first, morning), (last, evening) = divmod(after, DAY), divmod(until, DAY)
        begin, end = date.fromordinal(_EPOCH_DAY + first), date.fromordinal(_EPOCH_DAY + last)
        count = self._a_day * self._days_between(begin, end)
        if self._month(end.year, end.month) >> end.day & 1:
            count += self._through(evening)
        if self._month(begin.year, begin.month) >> begin.day & 1:
            count -= self._through(morning)
        return count

    def matches(self, here: date) -> bool:
        """Whether it fires on this day."""
        return bool(self._month(here.year, here.month) >> here.day & 1)

    def _month(self, year: int, month: int) -> int:
        return self.days.bits(*_shape(year, month)) if self.months.bits >> month & 1 else 0

    def _day_after(self, here: date) -> int | None:
        if not self.occurs:
            return None
        year, month = here.year, here.month
        bits = self._month(year, month) >> (here.day + 1) << (here.day + 1)
        while not bits:
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)
            if year > 9999:
                return None
            bits = self._month(year, month)
        return date(year, month, 1).toordinal() + _lowest(bits) - 1

    def _days_between(self, begin: date, end: date) -> int:
        """The number of matching days from `begin` until the day before `end`."""
        count = -(self._month(begin.year, begin.month) & ((1 << begin.day) - 1)).bit_count()
        count += (self._month(end.year, end.month) & ((1 << end.day) - 1)).bit_count()
        months = range(begin.year * 12 + begin.month - 1, end.year * 12 + end.month - 1)
        return count + sum(self._month(index // 12, index % 12 + 1).bit_count() for index in months)

    def _time_from(self, second: int) -> int | None:
        """The first time of a matching day that is not before `second`."""
        hour, rest = divmod(second, 3600)
        minute, second = divmod(rest, 60)
        if hour in self.hours:
            if minute in self.minutes and (seconds := self.seconds.bits >> second):
                return hour * 3600 + minute * 60 + second + _lowest(seconds)
            if minutes := self.minutes.bits >> (minute + 1):
                return hour * 3600 + (minute + 1 + _lowest(minutes)) * 60 + _lowest(self.seconds.bits)
        if hours := self.hours.bits >> (hour + 1):
            return (hour + 1 + _lowest(hours)) * 3600 + self._first % 3600
        return None

    def _through(self, second: int) -> int:
        """The number of fires of a matching day up to and with `second`."""
        hour, rest = divmod(second, 3600)
        minute, second = divmod(rest, 60)
        count = _below(self.hours.bits, hour) * self._an_hour
        if hour in self.hours:
            count += _below(self.minutes.bits, minute) * self.seconds.bits.bit_count()
            if minute in self.minutes:
                count += _below(self.seconds.bits, second + 1)
        return count


@lru_cache(maxsize=4096)
def _shape(year: int, month: int) -> tuple[int, int]:
    return monthrange(year, month)


wall_clock = lru_cache(maxsize=16384)(WallClock)


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _below(bits: int, number: int) -> int:
    return (bits & ((1 << number) - 1)).bit_count()
