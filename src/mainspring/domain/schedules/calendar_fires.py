"""The fires of a rule within a calendar: those outside it are left out, or move to the next allowed time.

A fire that moves has two steps. If its day is closed, it moves to the same time of the next open day. If that time is
closed, it moves to the next opening. Fires that meet are one. Of more than 300 fires in a row of closed days only the
last one moves.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from mainspring.domain.schedules.calendar_days import HORIZON, OpenTimes
from mainspring.domain.schedules.calendar_rules import rules_of
from mainspring.domain.schedules.occurrences import Occurrences, Once, listed
from mainspring.domain.schedules.schedule import Schedule

MOST_MOVED = 300
_MOST_STEPS = 300  # times outside the calendar that are evaluated in a row: 40 ms at worst
_FURTHEST = timedelta(days=HORIZON)
_LONGEST_MOVE = 3660  # days
_MOMENT = timedelta(microseconds=1)


def within_calendar(rule: Occurrences, schedule: Schedule) -> Occurrences:
    """Raises RulesNotLoaded."""
    times = open_times(schedule.calendar_rules, schedule.timezone)
    return Moved(MovedDays(rule, times), times) if schedule.outside == "next" else Within(rule, times)


def waiting_since(rule: Occurrences, schedule: Schedule, moment: datetime) -> datetime:
    """The earliest occurrence of the rule that waits for `moment`, at which the calendar has one, or for a later time:
    `moment` itself if none has moved. Very many that wait together are not evaluated: then it is `moment`, too."""
    if schedule.outside != "next":
        return moment
    before = _closed_before(open_times(schedule.calendar_rules, schedule.timezone), moment)
    if rule.count(before, moment) > MOST_MOVED:
        return moment
    for one in listed(rule, before, moment):
        moved = within_calendar(Once(one), schedule).next(one - _MOMENT)
        if moved is not None and moved >= moment:
            return one
    return moment


def _closed_before(times: OpenTimes, moment: datetime) -> datetime:
    """The moment before the closed time of which occurrences move to `moment`."""
    since = moment
    if not times.is_open(moment - _MOMENT) and (closed := times.closed_since(_second(moment))) is not None:
        since = _at(closed)
    day = times.day_of(since)
    if not times.is_open_day(day - 1):
        opened = times.open_day_until(day - 1)
        since = _at(times.day_start(max(day - _LONGEST_MOVE, 1 if opened is None else opened + 1)))
    return since - _MOMENT


def most_days(schedule: Schedule, parts: int) -> int:
    """In how many days a calendar has so many open parts."""
    return parts * 7 // open_times(schedule.calendar_rules, schedule.timezone).parts_a_week


def open_times(digest: str | None, timezone: str) -> OpenTimes:
    rules_of(digest)  # raises, and is not cached
    return _open_times(digest or "", timezone)


@lru_cache(maxsize=256)
def _open_times(digest: str, timezone: str) -> OpenTimes:
    return OpenTimes(rules_of(digest), timezone)


class Within:
    """The occurrences at times that the calendar allows."""

    def __init__(self, rule: Occurrences, times: OpenTimes) -> None:
        self._rule = rule
        self._times = times

    def next(self, after: datetime) -> datetime | None:
        begin = after
        for _ in range(_MOST_STEPS):
            found = self._rule.next(after)
            if found is None or found - begin > _FURTHEST:
                return None
            if self._times.is_open(found):
                return found
            opens = self._times.next_opening(int(found.timestamp()))
            if opens is None:
                return None
            after = max(found, _at(opens) - _MOMENT)
        return None

    def count(self, after: datetime, until: datetime) -> int:
        return sum(self._rule.count(low, high) for low, high in self._parts(after, until))

    def newest(self, after: datetime, until: datetime, count: int) -> list[datetime]:
        found: list[datetime] = []
        for low, high in _parts_back(self._times, after, until):
            found = self._rule.newest(low, high, count - len(found)) + found
            if len(found) >= count:
                break
        return found

    def _parts(self, after: datetime, until: datetime) -> Iterator[tuple[datetime, datetime]]:
        for start, end in _until(self._times, after, until):
            low, high = max(after, _at(start) - _MOMENT), min(until, _at(end) - _MOMENT)
            if low < high:
                yield low, high


class MovedDays:
    """The occurrences of open days, and those of the closed days before them at the same time of day."""

    def __init__(self, rule: Occurrences, times: OpenTimes) -> None:
        self._rule = rule
        self._times = times
        self._moved = lru_cache(maxsize=512)(self._moved_to)

    def next(self, after: datetime) -> datetime | None:
        day = self._times.day_of(after)
        if self._times.is_open_day(day):
            if (found := self._first_on(day, after)) is not None:
                return found
            base = self._end(day)
        else:
            base = self._start(self._closed_from(day))
        first = self._rule.next(base)
        if first is None:
            return None
        opens = self._times.open_day_from(self._times.day_of(first))
        if opens is None or opens - self._times.day_of(first) > _LONGEST_MOVE:
            return None
        return self._first_on(opens, self._start(opens))

    def count(self, after: datetime, until: datetime) -> int:
        total = 0
        for first, last in self._open_runs(after, until):
            low, high = max(after, self._start(first)), min(until, self._end(last))
            if low < high:
                total += self._rule.count(low, high) + len(_between(self._moved(first), low, high))
        return total

    def newest(self, after: datetime, until: datetime, count: int) -> list[datetime]:
        found: list[datetime] = []
        day = self._times.open_day_until(self._times.day_of(until))
        while day is not None and self._end(day) > after and len(found) < count:
            first = self._opened(day, self._times.day_of(after))
            low, high = max(after, self._start(first)), min(until, self._end(day))
            if low < high:
                some = self._rule.newest(low, high, count - len(found))
                some = sorted([*some, *_between(self._moved(first), low, high)])
                found = some[-(count - len(found)) :] + found
            day = self._times.open_day_until(first - 1)
        return found

    def _first_on(self, day: int, after: datetime) -> datetime | None:
        moved = self._moved(day)
        place = bisect_right(moved, after)
        found = self._rule.next(after)
        if found is not None and found > self._end(day):
            found = None
        if place < len(moved) and (found is None or moved[place] < found):
            return moved[place]
        return found

    def _moved_to(self, day: int) -> list[datetime]:
        """What moves to an open day, without the times at which the rule has an occurrence itself."""
        first = self._closed_from(day - 1) if not self._times.is_open_day(day - 1) else day
        if first == day:
            return []
        low, high = self._start(first), self._start(day)
        moving = self._rule.newest(low, high, 1 if self._rule.count(low, high) > MOST_MOVED else MOST_MOVED)
        moved = {self._times.at_same_time(one, day) for one in moving}
        return sorted(one for one in moved if self._rule.next(one - _MOMENT) != one)

    def _closed_from(self, day: int) -> int:
        """The first of the closed days in a row that ends with `day`."""
        opened = self._times.open_day_until(day)
        return max(day - _LONGEST_MOVE, 1 if opened is None else opened + 1)

    def _opened(self, day: int, least: int) -> int:
        """The first of the open days in a row that ends with `day`, not before `least`."""
        while day > least and self._times.is_open_day(day - 1):
            day -= 1
        return day

    def _open_runs(self, after: datetime, until: datetime) -> Iterator[tuple[int, int]]:
        last = self._times.day_of(until)
        day = self._times.open_day_from(self._times.day_of(after))
        while day is not None and day <= last:
            end = day
            while end < last and self._times.is_open_day(end + 1):
                end += 1
            yield day, end
            day = self._times.open_day_from(end + 1)

    def _start(self, day: int) -> datetime:
        """The moment before a day."""
        return _at(self._times.day_start(day)) - _MOMENT

    def _end(self, day: int) -> datetime:
        return self._start(day + 1)


class Moved:
    """The occurrences, and those at closed times at the next opening."""

    def __init__(self, inner: Occurrences, times: OpenTimes) -> None:
        self._inner = inner
        self._times = times

    def next(self, after: datetime) -> datetime | None:
        base = after
        if not self._times.is_open(after):
            closed = self._times.closed_since(_second(after))
            base = after if closed is None else _at(closed) - _MOMENT
        found = self._inner.next(base)
        if found is None or self._times.is_open(found):
            return found
        opens = self._times.next_opening(_second(found))
        return None if opens is None else _at(opens)

    def count(self, after: datetime, until: datetime) -> int:
        total, closed = 0, None
        for start, end in _until(self._times, after, until):
            opening = _at(start)
            low, high = max(after, opening - _MOMENT), min(until, _at(end) - _MOMENT)
            if low < high:
                total += self._inner.count(low, high)
                total += after < opening <= until and self._opens_with_one(start, closed)
            closed = end
        return total

    def newest(self, after: datetime, until: datetime, count: int) -> list[datetime]:
        found: list[datetime] = []
        for low, high in _parts_back(self._times, after, until):
            some = self._inner.newest(low, high, count - len(found))
            start = low + _MOMENT
            if low >= after and start <= until and self._opens_with_one(_second(start)) and _is_whole(start):
                some = [start, *some]
            found = some[-(count - len(found)) :] + found
            if len(found) >= count:
                break
        return found

    def _opens_with_one(self, start: int, closed: int | None = None) -> bool:
        """Whether something moves to this opening, at which there is nothing otherwise. `closed`: since when it is
        closed, if that is known."""
        closed = self._times.closed_since(start) if closed is None else closed
        if closed is None or closed == start:
            return False
        opening = _at(start)
        before = self._inner.next(_at(closed) - _MOMENT)
        return before is not None and before < opening and self._inner.next(opening - _MOMENT) != opening


def _parts_back(times: OpenTimes, after: datetime, until: datetime) -> Iterator[tuple[datetime, datetime]]:
    """The open parts of (after, until], the latest first. A part does not include its low end."""
    for start, end in times.spans_until(_second(until) + 1):
        low, high = max(after, _at(start) - _MOMENT), min(until, _at(end) - _MOMENT)
        if high <= after:
            return
        if low < high:
            yield low, high


def _until(times: OpenTimes, after: datetime, until: datetime) -> Iterator[tuple[int, int]]:
    last = _second(until)
    for start, end in times.spans_from(_second(after)):
        if start > last:
            return
        yield start, end


def _between(moments: list[datetime], low: datetime, high: datetime) -> list[datetime]:
    """The fires in (low, high]."""
    return moments[bisect_right(moments, low) : bisect_right(moments, high)]


def _is_whole(moment: datetime) -> bool:
    return moment.microsecond == 0


def _second(moment: datetime) -> int:
    return int(moment.timestamp() // 1)


def _at(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)
