"""The wall times of a rule, from its start to its COUNT, without a zone."""

from __future__ import annotations

from datetime import date, timedelta

from mainspring.domain.schedules.rule import RecurrenceRule
from mainspring.domain.schedules.rule_years import DAY, RuleYear, resolve, year_of_rule

HORIZON = 50  # years: a rule without a fire in them has none any more
_EPOCH = date(1970, 1, 1)
_LAST_YEAR = 9998


class RuleWalls:
    """Wall times in seconds since 1970. `start` is the first possible one; if it is not `exact`, it is not a wall time
    of the rule itself. A call takes some steps for each year: for the years up to the next wall time, for the range
    that is counted, and, once, from `start` on if the rule has a COUNT."""

    def __init__(self, rule: RecurrenceRule, start: int, *, exact: bool) -> None:
        self._rule = resolve(rule, start, exact=exact)
        self._first = start if exact else start + 1
        self._count = rule.count
        self._first_year = year_at(self._first)
        self._totals = [-self._year(self._first_year).through(self._first - 1)]  # how many are before each year

    def next(self, after: int) -> int | None:
        """The first one after `after`. None if there is none within 50 years."""
        after = max(after, self._first - 1)
        first = year_at(after)
        for year in range(first, min(first + HORIZON, _LAST_YEAR) + 1):
            here = self._year(year)
            passed = here.through(after)
            if passed < here.total:
                return here.at(passed) if self._count is None or self._before(year) + passed < self._count else None
        return None

    def count(self, after: int, until: int) -> int:
        """How many are in (after, until]."""
        after = max(after, self._first - 1)
        if until <= after:
            return 0
        if self._count is not None:
            return min(self._count, self._through(until)) - min(self._count, self._through(after))
        first, last = year_at(after), min(year_at(until), _LAST_YEAR)
        years = sum(self._year(year).total for year in range(first, last))
        return years + self._year(last).through(until) - self._year(first).through(after)

    def _year(self, year: int) -> RuleYear:
        return year_of_rule(self._rule, year)

    def _through(self, wall: int) -> int:
        year = min(year_at(wall), _LAST_YEAR)
        if year < self._first_year:  # one second before the first one
            return 0
        before = self._before(year)
        assert self._count is not None
        return before if before >= self._count else before + self._year(year).through(wall)

    def _before(self, year: int) -> int:
        """How many are before the year; if the count is reached earlier, that many."""
        assert self._count is not None
        while len(self._totals) <= year - self._first_year and self._totals[-1] < self._count:
            last = self._first_year + len(self._totals) - 1
            self._totals.append(self._totals[-1] + self._year(last).total)
        return self._totals[min(year - self._first_year, len(self._totals) - 1)]


def year_at(wall: int) -> int:
    return (_EPOCH + timedelta(days=wall // DAY)).year
