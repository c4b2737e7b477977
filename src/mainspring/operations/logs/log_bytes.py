"""The bytes of a log, out of whatever objects hold them.

Chunks are merged while they are read, so objects overlap, and one that was there a moment ago may be gone. Two objects
never disagree about a byte: any that holds it will do, and the one that reaches furthest is the one to read. What was
listed and has gone is looked for again, from the byte that was reached.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import NamedTuple

import msgspec

from mainspring.store.log_files import LogFiles, Stored

_DIRECT = 2
_LOOKS = 5  # in a row that lead nowhere: then the bytes are lost
_PORTION = 1024 * 1024
_MOST_BYTES_AHEAD = 2 * 1024 * 1024
_MOST_READS_AHEAD = 16


class Bytes(msgspec.Struct, frozen=True):
    """Some bytes of a log, and where in it they end."""

    data: bytes
    end: int


class Span(NamedTuple):
    """The bytes from `start` to `stop`, which lie in `stored`."""

    stored: Stored
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


def cover(objects: Sequence[Stored], start: int, end: int) -> list[Span]:
    """The fewest of these objects, which come in order, that hold the bytes from `start` to `end`; or to the first byte
    that none of them holds."""
    spans: list[Span] = []
    position, index = start, 0
    best: Stored | None = None
    while position < end:
        while index < len(objects) and objects[index].offset <= position:
            if best is None or (objects[index].end, objects[index].merged) > (best.end, best.merged):
                best = objects[index]
            index += 1
        if best is None or best.end <= position:
            break
        spans.append(Span(best, position, min(best.end, end)))
        position = spans[-1].stop
    return spans


class LogBytes:
    """Reads logs. A few MiB in memory, whatever a log's size."""

    def __init__(self, files: LogFiles) -> None:
        self._files = files

    async def read(self, folder: str, start: int, end: int) -> AsyncIterator[Bytes]:
        """The bytes from `start` to `end`; what the store has lost is replaced by a line that says so."""
        position = start
        # What was printed last is a chunk or two, and most logs are a single one: no need to ask what there is.
        for _ in range(_DIRECT):
            if position >= end:
                return
            data = await self._files.get(folder, position)
            if not data:
                break
            piece = data[: end - position]
            position += len(piece)
            yield Bytes(piece, position)
        looks = _LOOKS
        while position < end and looks:
            looks -= 1
            spans = cover(await self._files.objects(folder), position, end)
            async with aclosing(self.ahead(folder, spans)) as found:
                async for span, data in found:
                    if len(data) < span.size:  # merged, or put again: since we looked
                        break
                    position, looks = span.stop, _LOOKS
                    yield Bytes(data, position)
        if position < end:
            yield Bytes(_missing(end - position), end)

    async def ahead(self, folder: str, spans: Iterable[Span]) -> AsyncGenerator[tuple[Span, bytes], None]:
        """What these hold, in order, reading ahead of whoever takes it; less where an object has gone or is shorter."""
        under_way: deque[tuple[Span, asyncio.Task[bytes | None]]] = deque()
        size = 0
        shares = _portions(spans)
        coming = next(shares, None)
        try:
            while coming is not None or under_way:
                if coming is not None and (
                    not under_way or (size + coming.size <= _MOST_BYTES_AHEAD and len(under_way) < _MOST_READS_AHEAD)
                ):
                    under_way.append((coming, asyncio.create_task(self._files.read(folder, *coming))))
                    size += coming.size
                    coming = next(shares, None)
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


def _portions(spans: Iterable[Span]) -> Iterator[Span]:
    """What is merged is large, and is read a part at a time; a chunk is read whole."""
    for span in spans:
        step = _PORTION if span.stored.merged else span.size
        for start in range(span.start, span.stop, step):
            yield Span(span.stored, start, min(start + step, span.stop))


def _missing(count: int) -> bytes:
    return f"\n[mainspring: {count} bytes of output are missing from the log store]\n".encode()
