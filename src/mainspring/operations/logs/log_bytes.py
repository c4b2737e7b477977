"""Reads the bytes of a log from the stores that contain them. Most logs are in one store. A log that was written while
the setting changed is in two.

In a folder or object store, chunks can be merged while a log is read. So objects can overlap, and a listed object can
be removed before it is read. Two objects never contain different values for the same byte, so any of them can be read;
the reader takes the one that ends last. If an object was removed, the reader lists the objects again and continues at
the byte that it has reached.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing
from itertools import cycle
from typing import NamedTuple

import msgspec

from mainspring.store.log_files import LogFiles, Stored
from mainspring.store.log_stores import LogStore
from mainspring.wire.logs import MISSING_WORDS

_DIRECT = 2
_MAX_LISTINGS = 5  # in a row without progress; then the bytes count as lost
_PART_BYTES = 1024 * 1024
_MOST_BYTES_AHEAD = 2 * 1024 * 1024
_MOST_READS_AHEAD = 16


class Bytes(msgspec.Struct, frozen=True):
    """Some bytes of a log, and the offset at which they end."""

    data: bytes
    end: int


class ByteSpan(NamedTuple):
    """The bytes from `start` to `stop`, which `stored` contains."""

    stored: Stored
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


def cover(objects: Sequence[Stored], start: int, end: int) -> list[ByteSpan]:
    """The fewest of these sorted objects that contain the bytes from `start` to `end`. If a byte is missing, the result
    ends before it."""
    spans: list[ByteSpan] = []
    position, index = start, 0
    best: Stored | None = None
    while position < end:
        while index < len(objects) and objects[index].offset <= position:
            if best is None or (objects[index].end, objects[index].merged) > (best.end, best.merged):
                best = objects[index]
            index += 1
        if best is None or best.end <= position:
            break
        spans.append(ByteSpan(best, position, min(best.end, end)))
        position = spans[-1].stop
    return spans


class LogBytes:
    """Reads logs. It needs a few MiB of memory, regardless of a log's size."""

    def __init__(self, *stores: LogStore) -> None:
        self._readers = [ObjectReader(store) if isinstance(store, LogFiles) else store for store in stores]

    async def read(self, folder: str, start: int, end: int) -> AsyncIterator[Bytes]:
        """The bytes from `start` to `end`. A line replaces bytes that are missing from all stores."""
        position = start
        without = 0  # readers in a row that do not have the next byte
        for reader in cycle(self._readers):
            if position >= end or without == len(self._readers):
                break
            before = position
            async with aclosing(reader.read(folder, position, end)) as found:
                async for data, position in found:
                    yield Bytes(data, position)
            without = without + 1 if position == before else 0
        if position < end:
            yield Bytes(_missing(end - position), end)


class ObjectReader:
    """Reads the objects of a folder or object store."""

    def __init__(self, files: LogFiles) -> None:
        self._files = files

    async def read(self, folder: str, start: int, end: int) -> AsyncGenerator[tuple[bytes, int], None]:
        """The bytes from `start` to `end`, in parts, each with the offset at which it ends. It ends where a byte is not
        here."""
        position = start
        # Most logs are one chunk, and new output is one or two. These are read without listing the objects.
        for _ in range(_DIRECT):
            if position >= end:
                return
            data = await self._files.get(folder, position)
            if not data:
                break
            piece = data[: end - position]
            position += len(piece)
            yield piece, position
        listings_left = _MAX_LISTINGS
        while position < end and listings_left:
            listings_left -= 1
            spans = cover(await self._files.objects(folder), position, end)
            async with aclosing(self.ahead(folder, spans)) as found:
                async for span, data in found:
                    if len(data) < span.size:  # merged or replaced since the listing
                        break
                    position, listings_left = span.stop, _MAX_LISTINGS
                    yield data, position

    async def ahead(self, folder: str, spans: Iterable[ByteSpan]) -> AsyncGenerator[tuple[ByteSpan, bytes], None]:
        """The bytes of the spans in order, read ahead. Fewer bytes if an object was removed or is shorter."""
        under_way: deque[tuple[ByteSpan, asyncio.Task[bytes | None]]] = deque()
        size = 0
        parts = _parts(spans)
        coming = next(parts, None)
        try:
            while coming is not None or under_way:
                if coming is not None and (
                    not under_way or (size + coming.size <= _MOST_BYTES_AHEAD and len(under_way) < _MOST_READS_AHEAD)
                ):
                    under_way.append((coming, asyncio.create_task(self._files.read(folder, *coming))))
                    size += coming.size
                    coming = next(parts, None)
                    continue
                span, reading = under_way[0]
                data = await reading
                under_way.popleft()
                size -= span.size
                yield span, data or b""
        finally:
            for _, reading in under_way:
                reading.cancel()
            await asyncio.gather(*(reading for _, reading in under_way), return_exceptions=True)


def _parts(spans: Iterable[ByteSpan]) -> Iterator[ByteSpan]:
    """Divide merged objects, which are large, into parts. A chunk is read as a whole."""
    for span in spans:
        step = _PART_BYTES if span.stored.merged else span.size
        for start in range(span.start, span.stop, step):
            yield ByteSpan(span.stored, start, min(start + step, span.stop))


def _missing(count: int) -> bytes:
    return f"\n[mainspring: {count} {MISSING_WORDS}]\n".encode()
