"""The days that a calendar allows, and the times of these days.

A moment is open if its day, on the clock of the calendar's zone, is a weekday that is allowed and neither a holiday nor
an excluded date, if its time of day is within the hours and in no weekly blackout, and if no other blackout covers it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime
from functools import lru_cache

from mainspring.domain.schedules.clock_changes import DAY, changes, offset_at
from mainspring.domain.schedules.holiday_sets import BLOCK_BITS, holiday_block, learn_holidays
from mainspring.domain.schedules.zones import zone
from mainspring.wire.calendars import CalendarRequest, DateSpanIn, HolidaysIn, HoursIn, TimeSpanIn

WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
HORIZON = 50 * 366  # days; what is closed for longer than that never opens
_LOOK_BACK = 3660  # days, that a fire may have moved
Span = tuple[int, int]  # the first, and the first one after it
_EPOCH = date(1970, 1, 1).toordinal()
_LAST_DAY = date(9998, 12, 31).toordinal()
_FIRST_DAY = date(1900, 1, 1).toordinal()
_IN_BLOCK = (1 << BLOCK_BITS) - 1
_CACHED = 4096


def seconds_of(text: str) -> int:
    """The seconds of "09:30", up to "24:00". Raises ValueError."""
    parts = text.split(":")
    if len(parts) not in (2, 3) or not all(len(part) == 2 and part.isascii() and part.isdigit() for part in parts):
        raise ValueError(text)
    hour, minute, second = (*map(int, parts), 0)[:3]
    found = hour * 3600 + minute * 60 + second
    if minute > 59 or second > 59 or found > DAY:
        raise ValueError(text)
    return found


def weekly_windows(rules: CalendarRequest) -> tuple[tuple[Span, ...], ...]:
    """The open times of each weekday, in seconds of the day: its hours without the weekly blackouts."""
    windows = []
    for index, name in enumerate(WEEKDAYS):
        spans = [] if rules.weekdays and name not in rules.weekdays else _hours(rules.hours, index)
        closed = [
            (seconds_of(one.start), seconds_of(one.end))
            for one in rules.blackouts or ()
            if one.days is not None and name in one.days
        ]
        windows.append(tuple(without(merged(spans), merged(closed))))
    return tuple(windows)


def _hours(hours: HoursIn | list[TimeSpanIn] | None, weekday: int) -> list[Span]:
    if hours is None:
        return [(0, DAY)]
    if isinstance(hours, HoursIn):
        if hours.start is not None and hours.end is not None:
            return [(seconds_of(hours.start), seconds_of(hours.end))]
        given = getattr(hours, WEEKDAYS[weekday].lower())
        hours = [] if given is None else given if isinstance(given, list) else [given]
    return [(seconds_of(one.start), seconds_of(one.end)) for one in hours]


def merged(spans: Iterable[Span]) -> list[Span]:
    """The spans in order, without overlaps. Spans that touch are merged."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if start >= end:
            continue
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def without(spans: Iterable[Span], closed: list[Span]) -> list[Span]:
    """What is left of the spans. `closed` is merged."""
    left = []
    for start, end in spans:
        place = max(0, bisect_right(closed, (start, -1)) - 1)
        while place < len(closed) and closed[place][0] < end and start < end:
            shut, opens = closed[place]
            if start < shut:
                left.append((start, shut))
            start = max(start, opens)
            place += 1
        if start < end:
            left.append((start, end))
    return left


class OpenTimes:
    """When a calendar is open, in seconds of UTC."""

    def __init__(self, rules: CalendarRequest, timezone: str) -> None:
        self._zone = zone(rules.timezone or timezone)
        self._windows = weekly_windows(rules)
        self.parts_a_week = sum(map(len, self._windows))
        given = rules.holidays
        self._holidays: list[HolidaysIn] = [given] if isinstance(given, HolidaysIn) else given or []
        spans = [_days(one) for one in rules.dates or ()]
        self._dates = merged(spans)
        self._blackouts = merged(
            (self._moment(one.start), self._moment(one.end)) for one in rules.blackouts or () if one.days is None
        )
        self.open_spans: Callable[[int], tuple[Span, ...]] = lru_cache(maxsize=_CACHED)(self._open_spans)
        self.day_start: Callable[[int], int] = lru_cache(maxsize=_CACHED)(self._day_start)
        self._holiday_blocks: dict[int, int] = {}

    # Days, as ordinals

    def is_open_day(self, day: int) -> bool:
        if not self._windows[(day - 1) % 7] or _covering(self._dates, day) is not None:
            return False
        return not (self._holidays and self._is_holiday(day))

    def open_day_from(self, day: int) -> int | None:
        """The first open day, from `day` on. None if there is none within the horizon."""
        last = min(day + HORIZON, _LAST_DAY)
        while day <= last:
            if (span := _covering(self._dates, day)) is not None:
                day = span[1]
            elif self._windows[(day - 1) % 7] and not (self._holidays and self._is_holiday(day)):
                return day
            else:
                day += 1
        return None

    def open_day_until(self, day: int) -> int | None:
        """The last open day, up to `day`."""
        first = max(day - HORIZON, _FIRST_DAY)
        while day >= first:
            if (span := _covering(self._dates, day)) is not None:
                day = span[0] - 1
            elif self._windows[(day - 1) % 7] and not (self._holidays and self._is_holiday(day)):
                return day
            else:
                day -= 1
        return None

    def day_of(self, moment: datetime) -> int:
        """The day in which a moment lies: from its first midnight to the next."""
        here, second = moment.astimezone(self._zone).toordinal(), int(moment.timestamp() // 1)
        if second < self.day_start(here):
            return here - 1
        return here + 1 if second >= self.day_start(here + 1) else here

    def at_same_time(self, moment: datetime, day: int) -> datetime:
        """The same time of day on another day. A time that clocks skip is as much later as they are moved."""
        local = moment.astimezone(self._zone).replace(tzinfo=None)
        there = datetime.combine(date.fromordinal(day), local.time(), tzinfo=self._zone).astimezone(UTC)
        last = datetime.fromtimestamp(self.day_start(day + 1) - 1, UTC)
        return min(there, last)

    # Times, in seconds of UTC

    def is_open(self, moment: datetime) -> bool:
        second = int(moment.timestamp() // 1)
        return any(start <= second < end for start, end in self.open_spans(second // DAY))

    def spans_from(self, second: int) -> Iterator[Span]:
        """The open spans that end after `second`, in order. Spans that touch are one. The first one may begin before
        `second`; how much of it comes before the day of `second` is left open."""
        held: Span | None = None
        for bucket in self._buckets_from(second // DAY):
            for start, end in self.open_spans(bucket):
                if end <= second:
                    continue
                if held is not None and start <= held[1]:
                    held = (held[0], end)
                    continue
                if held is not None:
                    yield held
                held = (start, end)
            # A span that goes on without an end must not be collected for ever.
            if held is not None and held[1] - held[0] > 400 * DAY:
                yield held
                held = None
        if held is not None:
            yield held

    def next_opening(self, second: int) -> int | None:
        """The first second from `second` on that is open."""
        for bucket in self._buckets_from(second // DAY):
            for start, end in self.open_spans(bucket):
                if end > second:
                    return max(start, second)
        return None

    def spans_until(self, second: int) -> Iterator[Span]:
        """The open spans that begin before `second`, the latest first. They are not joined."""
        for bucket in self._buckets_until(second // DAY):
            for start, end in reversed(self.open_spans(bucket)):
                if start < second:
                    yield start, end

    def closed_since(self, second: int) -> int | None:
        """The end of the last open span before `second`, which is closed."""
        return next((end for _, end in self.spans_until(second)), None)

    def _buckets_from(self, bucket: int) -> Iterator[int]:
        """The days of UTC that may have open times. Long closed times are skipped."""
        last = bucket + HORIZON
        while bucket <= last:
            yield bucket
            following = bucket + 1
            if not self.open_spans(bucket):
                if (blackout := _covering(self._blackouts, bucket * DAY)) is not None:
                    following = max(following, blackout[1] // DAY)
                # The local day is at most one day off.
                opens = self.open_day_from(max(bucket + _EPOCH - 1, _FIRST_DAY))
                if opens is None:
                    return
                following = max(following, opens - _EPOCH - 1)
            bucket = following

    def _buckets_until(self, bucket: int) -> Iterator[int]:
        first = bucket - HORIZON
        while bucket >= first:
            yield bucket
            following = bucket - 1
            if not self.open_spans(bucket):
                if (blackout := _covering(self._blackouts, bucket * DAY)) is not None:
                    following = min(following, blackout[0] // DAY)
                opened = self.open_day_until(min(bucket + _EPOCH + 1, _LAST_DAY))
                if opened is None:
                    return
                following = min(following, opened - _EPOCH + 1)
            bucket = following

    def _open_spans(self, bucket: int) -> tuple[Span, ...]:
        """The open spans of one day of UTC, in order."""
        low, high = bucket * DAY, (bucket + 1) * DAY
        before, after = offset_at(self._zone, low), offset_at(self._zone, high)
        parts = [(low, high, before)]
        if before != after:
            change = self._change_within(low, high)
            parts = [(low, change, before), (change, high, after)]
        found: list[Span] = []
        for start, end, offset in parts:
            for day in range((start + offset) // DAY, (end - 1 + offset) // DAY + 1):
                if not self.is_open_day(day + _EPOCH):
                    continue
                midnight = day * DAY - offset
                for opens, closes in self._windows[(day + _EPOCH - 1) % 7]:
                    found.append((max(start, midnight + opens), min(end, midnight + closes)))
        return tuple(without(merged(found), self._blackouts))

    def _change_within(self, low: int, high: int) -> int:
        """When clocks are moved within a day, which happens at most once a day."""
        year = datetime.fromtimestamp(low, UTC).year
        return next(change.at for change in changes(self._zone, year) if low < change.at <= high)

    def _day_start(self, day: int) -> int:
        return int(datetime.combine(date.fromordinal(day), datetime.min.time(), tzinfo=self._zone).timestamp())

    def _is_holiday(self, day: int) -> bool:
        block = day >> BLOCK_BITS
        found = self._holiday_blocks.get(block)
        if found is None:
            found = 0
            for one in self._holidays:
                found |= holiday_block(one.country, one.subdivision, block)
            self._holiday_blocks[block] = found
        return bool(found >> (day & _IN_BLOCK) & 1)

    def _moment(self, text: str) -> int:
        return int(datetime.fromisoformat(text).replace(tzinfo=self._zone).timestamp())


def learn_holidays_of(rules: CalendarRequest, now: datetime) -> None:
    """Work out all holidays that a search for a fire from now on can ask for. Takes up to a second the first time."""
    given = rules.holidays
    today = now.toordinal()
    for one in [given] if isinstance(given, HolidaysIn) else given or []:
        learn_holidays(one.country, one.subdivision, today - _LOOK_BACK, today + HORIZON + _LOOK_BACK)


def _days(one: str | DateSpanIn) -> Span:
    first, last = (one, one) if isinstance(one, str) else (one.first, one.last)
    return date.fromisoformat(first).toordinal(), date.fromisoformat(last).toordinal() + 1


def _covering(spans: list[Span], place: int) -> Span | None:
    index = bisect_right(spans, (place, HORIZON * DAY * 1000)) - 1
    return spans[index] if index >= 0 and spans[index][0] <= place < spans[index][1] else None
