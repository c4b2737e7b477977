"""Wall times in a time zone: what becomes of those that clocks skip or show twice.

`gap`: a skipped wall time fires right after the change (shift), or not at all (skip). `fold`: of a wall time that
occurs twice the first fires, the last, or both.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

import msgspec

from mainspring.domain.schedules.clock_changes import DAY, offset_at
from mainspring.domain.schedules.occurrences import before_newest, listed

_EPOCH = datetime(1970, 1, 1)


class Walls(Protocol):
    """Wall times in seconds since 1970."""

    def next(self, after: int) -> int | None:
        """The first one after `after`."""

    def count(self, after: int, until: int) -> int:
        """How many are in (after, until]."""


class InZone:
    """The occurrences (see occurrences.py) of wall times. `zone` None means UTC."""

    def __init__(self, walls: Walls, zone: ZoneInfo | None, gap: str = "shift", fold: str = "first") -> None:
        self._walls = walls
        self._zone = zone
        self._gap = gap
        self._fold = fold

    def next(self, after: datetime) -> datetime | None:
        try:
            moment = self._next(_second(after))
            return None if moment is None else datetime.fromtimestamp(moment, UTC)
        except (OverflowError, ValueError):
            return None  # after the year 9999

    def count(self, after: datetime, until: datetime) -> int:
        return self._count(_second(after), _second(until))

    def newest(self, after: datetime, until: datetime, count: int) -> list[datetime]:
        low = before_newest(self._count, _second(after), _second(until), count)
        return listed(self, max(after, datetime.fromtimestamp(low, UTC)), until)[-count:]

    def _next(self, start: int) -> int | None:
        if self._zone is None:
            return self._walls.next(start)
        zone, best = self._zone, None
        after = start + offset_at(zone, start)
        change = self._fold_ahead(zone, start) if self._fold != "first" else None
        if change is not None:  # wall times that have passed come again
            after = change + offset_at(zone, change) - 1
        while (wall := self._walls.next(after)) is not None:
            here = (_EPOCH + timedelta(seconds=wall)).replace(tzinfo=zone)
            first, second = int(here.timestamp()), int(here.replace(fold=1).timestamp())
            if best is not None and first >= best:
                break
            after = wall
            if second < first:  # skipped: with fold 0 and fold 1 it is on the two sides of the change
                change = change_of_offset(zone, second, first)
                if self._gap == "shift":
                    return change
                after = change + offset_at(zone, change) - 1
            elif second == first:
                return first
            elif self._fold == "first" and first <= start:
                change = change_of_offset(zone, first, second)
                after = change - 1 + offset_at(zone, change - 1)
            else:
                moments = {"first": (first,), "last": (second,)}.get(self._fold, (first, second))
                coming = [moment for moment in moments if moment > start]
                if self._fold != "both":
                    return coming[0]
                best = min([*coming, *([] if best is None else [best])], default=None)
        return best

    @staticmethod
    def _fold_ahead(zone: ZoneInfo, start: int) -> int | None:
        """When clocks are moved back, if the wall time of `start` occurs again then."""
        here = datetime.fromtimestamp(start, zone)
        if here.fold:
            return None
        again = int(here.replace(fold=1).timestamp())
        return change_of_offset(zone, start, again) if again > start else None

    def _count(self, start: int, end: int) -> int:
        """How many are in the seconds (start, end]."""
        if self._zone is None:
            return self._walls.count(start, end)
        if end <= start:
            return 0
        count = 0
        # Two days more on both sides: a change shortly before or after decides about wall times in between.
        for part in _parts(self._zone, start - 2 * DAY, end + 2 * DAY):
            low, high = part.low + part.offset, part.high + part.offset
            if part.before is not None and part.offset < part.before and self._fold == "first":
                low = part.low + part.before
            if part.after is not None and part.after < part.offset and self._fold == "last":
                high = part.high + part.after
            if (
                part.before is not None
                and part.before < part.offset
                and self._gap == "shift"
                and start <= part.low < end
            ):
                skipped = self._walls.count(part.low + part.before, part.low + part.offset)
                if skipped and not self._walls.count(low, low + 1):
                    count += 1
            count += self._walls.count(max(low, start + part.offset), min(high, end + part.offset))
        return count


class _Part(msgspec.Struct):
    """The seconds (low, high], in which the zone has one offset, and the offsets before and after it."""

    low: int
    high: int
    offset: int
    before: int | None = None
    after: int | None = None


def _parts(zone: ZoneInfo, start: int, end: int) -> Iterator[_Part]:
    part = _Part(start, end, offset_at(zone, start))
    known = start
    while known < end:
        look = min(known + DAY, end)
        if offset_at(zone, look) == part.offset:
            known = look
            continue
        known = change_of_offset(zone, known, look)
        part.high, part.after = known - 1, offset_at(zone, known)
        yield part
        part = _Part(known - 1, end, part.after, before=part.offset)
    yield part


def change_of_offset(zone: ZoneInfo, before: int, after: int) -> int:
    """The first second with the offset of `after`. The offset at `before` is a different one."""
    offset = offset_at(zone, after)
    while after - before > 1:
        middle = (before + after) // 2
        if offset_at(zone, middle) == offset:
            after = middle
        else:
            before = middle
    return after


def _second(moment: datetime) -> int:
    return int(moment.replace(microsecond=0).timestamp())
