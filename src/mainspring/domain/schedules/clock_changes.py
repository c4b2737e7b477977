"""What wall times a cron expression or a recurrence rule may use where the clocks of a zone are moved.

A gap is a change in which wall times are skipped. An overlap is one in which they occur twice. A policy says what
happens to them. gap: `shift` fires once right after the gap if it skipped any fire, `skip` does not. overlap: the
`first` of two equal wall times fires, the `last`, or `both`.

A year of a zone is divided into stretches, and the policy is applied to them. So the next fire and the number of fires
come from the same table.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

DAY = 86400
_NONE = timedelta(0)
_MARGIN = 3 * DAY  # a change that is farther away than this does not matter: the largest moves clocks by a day
_FIRST = int(datetime(1, 1, 3, tzinfo=UTC).timestamp())
_LAST = int(datetime(9999, 12, 30, tzinfo=UTC).timestamp())


class ClockChange(NamedTuple):
    """`at` is the first second with the offset `after`."""

    at: int
    before: int
    after: int


class Stretch(NamedTuple):
    """The wall times (low, high] may fire. They are wall times with this offset; or, if `at` is given, they are skipped
    ones that fire together, once, at that moment. last: the last moment of the stretch."""

    last: int
    low: int
    high: int
    offset: int
    at: int | None = None


class Year(NamedTuple):
    """The stretches of a year (UTC), in order. `lasts` are their last moments; `end` is the first moment after it."""

    lasts: tuple[int, ...]
    stretches: tuple[Stretch, ...]
    end: int


@lru_cache(maxsize=4096)
def year_of(place: ZoneInfo, shift: bool, fold: str, year: int) -> Year:
    begin, end = _bounds(year)
    found = [part for part in _stretches(place, shift, fold, year) if part.last >= begin]
    clipped = [part if part.at is not None else _clip(part, begin, end) for part in found]
    kept = tuple(part for part in clipped if part.high > part.low and (part.at is None or part.at < end))
    return Year(tuple(part.last for part in kept), kept, end)


def _clip(part: Stretch, begin: int, end: int) -> Stretch:
    low = max(part.low, begin - 1 + part.offset)
    high = min(part.high, end - 1 + part.offset)
    return Stretch(high - part.offset, low, high, part.offset)


def _stretches(place: ZoneInfo, shift: bool, fold: str, year: int) -> Iterator[Stretch]:
    around = changes(place, year)
    begin, end = _bounds(year)
    low, offset = begin - _MARGIN, around[0].before if around else offset_at(place, begin)
    for change in (*around, None):
        high = end + _MARGIN if change is None else change.at - 1
        if change is not None and fold == "last" and change.after < change.before:
            high -= change.before - change.after
        yield Stretch(high, low + offset, high + offset, offset)
        if change is None:
            return
        if shift and change.after > change.before:
            yield Stretch(
                change.at, change.at - 1 + change.before, change.at - 1 + change.after, change.after, change.at
            )
        low, offset = change.at - 1, change.after
        if fold == "first" and change.after < change.before:
            low += change.before - change.after


@lru_cache(maxsize=4096)
def changes(place: ZoneInfo, year: int) -> tuple[ClockChange, ...]:
    """The changes of a zone's offset in a year (UTC), and three days before and after it."""
    begin, end = _bounds(year)
    known, stop = max(begin - _MARGIN, _FIRST), min(end + _MARGIN, _LAST)
    # From 2038 on zones follow a rule, and no two changes are near each other.
    apart = DAY if year < 2038 else 7 * DAY
    found, offset = [], offset_at(place, known)
    while known < stop:
        look = min(known + apart, stop)
        if (new := offset_at(place, look)) != offset:
            at = _first_with(place, known, look, new)
            found.append(ClockChange(at, offset, new))
            offset = new
        known = look
    return tuple(found)


def _first_with(place: ZoneInfo, before: int, after: int, offset: int) -> int:
    """The first second with `offset`, which is that of `after` and not that of `before`."""
    while after - before > 1:
        middle = (before + after) // 2
        if offset_at(place, middle) == offset:
            after = middle
        else:
            before = middle
    return after


def offset_at(place: ZoneInfo, moment: int) -> int:
    """The seconds that wall clocks are ahead of UTC."""
    offset = datetime.fromtimestamp(moment, place).utcoffset() or _NONE
    return offset.days * DAY + offset.seconds


@lru_cache(maxsize=1024)
def _bounds(year: int) -> tuple[int, int]:
    begin = int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
    return begin, begin + (366 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 365) * DAY
