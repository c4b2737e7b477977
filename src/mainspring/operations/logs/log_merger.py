"""Merges the small chunks of logs into larger objects, while a log grows and when it ends.

A merger stores the bytes of several objects as one more object, and then removes the several ones. Nothing else is ever
removed. So each valid byte is always in some object, and a reader finds it (see log_bytes): after a crash, while
another server merges, and when a chunk arrives late. No row says what is merged; the objects of a log show it. A server
remembers how many small chunks it has stored, so a log of a few chunks is not listed at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import NamedTuple

from mainspring.domain.errors import Unavailable
from mainspring.kernel.clock import Clock
from mainspring.operations.logs.log_bytes import ByteSpan, ObjectReader, cover
from mainspring.store.log_files import LogFiles, Stored

QUIET = 600.0  # seconds without a chunk: the worker may be lost, and then the end of the log is never reported
_MAX_LISTINGS = 3
_AT_ONCE = 4


class MergeRule(NamedTuple):
    """What is merged, and when.

    small     objects with fewer bytes are merged; a worker ships this much at once, so fast output has large chunks
    largest   the most bytes of a merged object
    many      the number of small chunks that are merged while the log grows
    few       up to this number of objects are not merged; readers read them together, so merging would not pay
    """

    small: int = 256 * 1024
    largest: int = 4 * 1024 * 1024
    many: int = 64
    few: int = 8


class _Growing:
    """A log whose chunks arrive at this server. `whole`: all of it arrived here, and nothing is merged yet."""

    __slots__ = ("end", "ended", "heard_at", "small", "whole")

    def __init__(self) -> None:
        self.whole = True
        self.small = 0
        self.end = 0
        self.ended = False
        self.heard_at = 0.0


_RULE = MergeRule()


class LogMerger:
    name = "log_merger"
    interval = 1.0

    def __init__(self, files: LogFiles, clock: Clock, rule: MergeRule = _RULE) -> None:
        self._files = files
        self._reader = ObjectReader(files)
        self._clock = clock
        self._rule = rule
        self._growing: dict[str, _Growing] = {}
        self._due: dict[str, None] = {}
        self._swept_at = clock.monotonic()
        self._merging = asyncio.Semaphore(_AT_ONCE)

    @property
    def logs(self) -> int:
        """How many logs are growing, as far as this server knows."""
        return len(self._growing)

    def arrived(self, folder: str, offset: int, sizes: Sequence[int], *, ended: bool) -> None:
        """Chunks of these sizes are valid now. The first one begins at `offset`."""
        growing = self._growing.get(folder)
        if growing is None:
            growing = self._growing[folder] = _Growing()
        growing.whole = growing.whole and offset == growing.end  # otherwise some of it arrived at another server
        growing.small += sum(0 < size < self._rule.small for size in sizes)
        growing.end = max(growing.end, offset + sum(sizes))
        growing.ended = growing.ended or ended
        growing.heard_at = self._clock.monotonic()
        if growing.ended and growing.whole and growing.small <= self._rule.few:
            self._forget(folder)
        elif growing.ended or growing.small >= self._rule.many:
            self._due[folder] = None

    async def run_once(self) -> int:
        """Merge the logs that are due. Return by how many the number of objects fell."""
        self._sweep()
        due = list(self._due)
        self._due.clear()
        found = await asyncio.gather(*map(self._merge_due, due), return_exceptions=True)
        for result in found:
            if isinstance(result, BaseException):
                raise result
        return sum(result for result in found if not isinstance(result, BaseException))

    async def _merge_due(self, folder: str) -> int:
        async with self._merging:
            growing = self._growing.get(folder)
            if growing is None:
                return 0
            seen, ended = growing.small, growing.ended
            try:
                fewer = await self.merge(folder, growing.end, ended=ended)
            except Unavailable:
                self._due[folder] = None
                raise
            growing.small -= seen
            growing.whole = False
            if ended or (growing.small == 0 and self._is_quiet(growing)):
                self._forget(folder)
            return fewer

    async def merge(self, folder: str, end: int, *, ended: bool) -> int:
        """Merge the small objects among those that contain the first `end` bytes of a log. Return by how many the
        number of objects fell. While a log grows, a merged object is merged again only when as many bytes have arrived
        after it. So a byte is moved at most as often as the size of the log doubles."""
        for _ in range(_MAX_LISTINGS):
            objects = await self._files.objects(folder)
            spans = cover(objects, 0, end)
            if ended and max(len(spans), len(objects)) <= self._rule.few:
                return 0
            if not spans or spans[-1].stop < end:
                continue  # another server merges, or bytes are lost and the log stays as it is
            merged = await self._put(folder, _segments(spans, self._rule, ended))
            if merged is not None:
                covered = _covered([*objects, *merged])
                await self._files.remove(folder, covered)
                return len(covered) - len(set(merged) - set(objects))
        return 0

    async def _put(self, folder: str, segments: Iterable[list[ByteSpan]]) -> list[Stored] | None:
        """The new objects. None if an object was removed before it was read."""
        merged = []
        for segment in segments:
            data = bytearray()
            async with aclosing(self._reader.ahead(folder, segment)) as found:
                async for span, share in found:
                    if len(share) < span.size:
                        return None
                    data += share
            merged.append(await self._files.put_merged(folder, segment[0].start, bytes(data)))
        return merged

    def _sweep(self) -> None:
        """Forget logs without new chunks. Those that are worth it are merged once more before."""
        now = self._clock.monotonic()
        if now - self._swept_at < QUIET / 10:
            return
        self._swept_at = now
        for folder, growing in list(self._growing.items()):
            if not self._is_quiet(growing):
                continue
            if growing.small > self._rule.few:
                self._due[folder] = None
            elif folder not in self._due:
                self._forget(folder)

    def _is_quiet(self, growing: _Growing) -> bool:
        return self._clock.monotonic() - growing.heard_at >= QUIET

    def _forget(self, folder: str) -> None:
        self._growing.pop(folder, None)
        self._due.pop(folder, None)


def _segments(spans: Sequence[ByteSpan], rule: MergeRule, ended: bool) -> Iterator[list[ByteSpan]]:
    """The groups to merge: adjacent small objects, as many as fit into one object."""
    for small in _runs_of_small(spans, rule.small):
        segment: list[ByteSpan] = []
        for span in small if ended else _recent(small):
            if segment and span.stop - segment[0].start > rule.largest:
                if len(segment) > 1:
                    yield segment
                segment = []
            # The first object is taken from its beginning, so that the merged object contains all of it.
            segment.append(span if segment else ByteSpan(span.stored, span.stored.offset, span.stop))
        if len(segment) > 1:
            yield segment


def _runs_of_small(spans: Sequence[ByteSpan], small: int) -> Iterator[list[ByteSpan]]:
    run: list[ByteSpan] = []
    for span in spans:
        if span.stored.size < small:
            run.append(span)
            continue
        yield run
        run = []
    yield run


def _recent(spans: list[ByteSpan]) -> list[ByteSpan]:
    """The spans without merged objects that are larger than everything after them."""
    size = 0
    for index in reversed(range(len(spans))):
        stored = spans[index].stored
        if stored.merged and stored.size > size:
            return spans[index + 1 :]
        size += stored.size
    return spans


def _covered(objects: Iterable[Stored]) -> list[Stored]:
    """The objects that lie within a merged one. A chunk never replaces another object, because it can be sent again and
    be shorter then."""
    covered: list[Stored] = []
    reach = 0
    for stored in sorted(set(objects), key=lambda stored: (stored.offset, -stored.size, not stored.merged)):
        if stored.end <= reach:
            covered.append(stored)
        elif stored.merged:
            reach = stored.end
    return covered
