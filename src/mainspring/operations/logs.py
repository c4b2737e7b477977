"""Logs: take in what workers print, and give it to readers.

A shipment is put in three steps: look who holds the runs, put the objects, and count them in one statement that looks
again. So bytes that count are always there, and what was put and never counted is never read. A chunk is the same
object however often it is sent.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID

import msgspec

from mainspring.domain.errors import InvalidInput, NotFound
from mainspring.domain.sizes import format_size
from mainspring.kernel.config import MAX_LOG_CHUNK
from mainspring.kernel.ids import TenantId
from mainspring.store import logs
from mainspring.store.log_files import LogFiles, Stored, folder_of
from mainspring.store.logs import AttemptLog, Found, Key, Piece, Standing
from mainspring.store.pool import Store
from mainspring.wire.logs import LogChunk, LogReceipt, LogShipment

_PUT_AT_ONCE = 8
_READ_AT_ONCE = 2 * 1024 * 1024
_MOST_READ_AT_ONCE = 16


class Bytes(msgspec.Struct, frozen=True):
    """Some bytes of a log, and where in it they end."""

    data: bytes
    end: int


class LogKeeper:
    def __init__(self, store: Store, files: LogFiles) -> None:
        self._store = store
        self._files = files
        self._putting = asyncio.Semaphore(_PUT_AT_ONCE)
        self._listeners: defaultdict[UUID, set[asyncio.Event]] = defaultdict(set)
        self.closed = False

    # --- from workers

    async def append(self, tenant: TenantId, shipment: LogShipment) -> LogReceipt:
        """Keep what fits on; the receipt says what was refused. Safe to repeat, also at another server."""
        by_log = _by_log(shipment.chunks)
        async with self._store.hot.acquire() as connection:
            found = await logs.look(connection, tenant, shipment.worker_id, list(by_log))
        receipt = LogReceipt()
        pieces: list[Piece] = []
        puts = []
        for key, chunks in by_log.items():
            fresh = _fresh(chunks, found[key])
            attempt = found[key].attempt
            if not fresh:
                receipt.stored += len(chunks)
            elif attempt is None:
                receipt.fenced.append(key[0])
            elif fresh[0].offset != found[key].bytes:
                receipt.gaps.append(key[0])
            else:
                folder = folder_of(tenant, key[0], attempt, key[1])
                puts += [self._put(folder, chunk) for chunk in fresh if chunk.data]
                pieces.append(_piece(fresh))
        if pieces:
            await asyncio.gather(*puts)
            await self._count(tenant, shipment.worker_id, pieces, by_log, receipt)
        return receipt

    async def _put(self, folder: str, chunk: LogChunk) -> None:
        async with self._putting:
            await self._files.put(folder, chunk.offset, chunk.data)

    async def _count(
        self,
        tenant: TenantId,
        worker_id: UUID,
        pieces: list[Piece],
        by_log: dict[Key, list[LogChunk]],
        receipt: LogReceipt,
    ) -> None:
        async with self._store.hot.acquire() as connection:
            counted = await logs.advance(connection, tenant, worker_id, pieces)
            left = [(piece.run_id, piece.fence) for piece in pieces if (piece.run_id, piece.fence) not in counted]
            found = await logs.look(connection, tenant, worker_id, left) if left else {}
        for run_id, fence in counted:
            receipt.stored += len(by_log[run_id, fence])
            self._wake(run_id)
        for key in left:  # somebody was faster: the same shipment at another server, or the next owner of the run
            if not _fresh(by_log[key], found[key]):
                receipt.stored += len(by_log[key])
            elif found[key].attempt is None:
                receipt.fenced.append(key[0])
            else:
                receipt.gaps.append(key[0])

    # --- to readers

    async def standing(self, tenant: TenantId, run_id: UUID, attempt: int | None = None) -> Standing:
        """How the run stands; raises NotFound when there is no such run, or no such attempt of it."""
        async with self._store.reads.acquire() as connection:
            standing = await logs.standing(connection, tenant, run_id)
        if standing is None:
            raise NotFound(f"there is no run {run_id}", hint="see GET /v1/runs")
        begun = max(standing.attempt, *standing.logs, 0)
        if attempt is not None and not 1 <= attempt <= begun:
            words = f"{begun} so far" if begun else "none yet"
            raise NotFound(f"run {run_id} has no attempt {attempt}", field="attempt", hint=f"it has had {words}")
        return standing

    async def read(self, tenant: TenantId, run_id: UUID, log: AttemptLog) -> AsyncIterator[bytes]:
        """All that counts, with a visible mark where the rest was cut off. A few MiB in memory, whatever its size."""
        async for piece in self.bytes_of(folder_of(tenant, run_id, log.attempt, log.fence), 0, log.bytes):
            yield piece.data
        if log.truncated:
            yield truncation_mark(log).encode()

    async def bytes_of(self, folder: str, start: int, end: int) -> AsyncIterator[Bytes]:
        """The bytes from `start` to `end`; what the store has lost is replaced by a line that says so."""
        if start >= end:
            return
        position = start
        for group in _groups(await self._files.chunks(folder), start, end):
            found = await asyncio.gather(*(self._files.get(folder, stored.offset) for stored in group))
            for stored, data in zip(group, found, strict=True):
                if data is None or stored.offset > position:
                    break
                piece = data[position - stored.offset : end - stored.offset]
                position += len(piece)
                yield Bytes(piece, position)
            else:
                continue
            break
        if position < end:
            yield Bytes(_missing(end - position), end)

    async def bytes_after(self, folder: str, start: int, end: int) -> AsyncIterator[Bytes]:
        """The same where a chunk begins at `start`: without asking the store what it has."""
        position = start
        while position < end:
            data = await self._files.get(folder, position)
            if not data:
                yield Bytes(_missing(end - position), end)
                return
            position += len(data)
            yield Bytes(data, position)

    # --- news of this server

    @contextmanager
    def listening(self, run_id: UUID) -> Iterator[asyncio.Event]:
        """An event that is set whenever output of the run arrives at this server."""
        news = asyncio.Event()
        self._listeners[run_id].add(news)
        try:
            yield news
        finally:
            self._listeners[run_id].discard(news)
            if not self._listeners[run_id]:
                del self._listeners[run_id]

    def close(self) -> None:
        """The server stops: whoever follows a log is let go, and asks elsewhere for the rest."""
        self.closed = True
        for run_id in self._listeners:
            self._wake(run_id)

    def _wake(self, run_id: UUID) -> None:
        for news in self._listeners.get(run_id, ()):
            news.set()


def truncation_mark(log: AttemptLog) -> str:
    """The line that a truncated log ends with."""
    return f"\n[mainspring: output truncated at {format_size(log.bytes)}]\n"


def _missing(count: int) -> bytes:
    return f"\n[mainspring: {count} bytes of output are missing from the log store]\n".encode()


def _by_log(chunks: Sequence[LogChunk]) -> dict[Key, list[LogChunk]]:
    """The chunks of each log, in the order in which they came; raises InvalidInput unless each follows on the last."""
    found: dict[Key, list[LogChunk]] = {}
    for index, chunk in enumerate(chunks):
        before = found.setdefault((chunk.run_id, chunk.fence), [])
        if before and chunk.offset != before[-1].offset + len(before[-1].data):
            raise InvalidInput(
                f"the chunk at {chunk.offset} does not follow on the one before it",
                field=f"chunks[{index}].offset",
                expected=str(before[-1].offset + len(before[-1].data)),
            )
        if len(chunk.data) > MAX_LOG_CHUNK:
            raise InvalidInput(
                f"the chunk has {len(chunk.data)} bytes", field=f"chunks[{index}].data",
                expected=f"at most {MAX_LOG_CHUNK} bytes",
            )  # fmt: skip
        before.append(chunk)
    return found


def _fresh(chunks: Sequence[LogChunk], found: Found) -> list[LogChunk]:
    """Those that are not kept already. An empty one only carries a mark, which may be set twice."""
    return [chunk for chunk in chunks if chunk.offset + len(chunk.data) > found.bytes or not chunk.data]


def _piece(chunks: Sequence[LogChunk]) -> Piece:
    first, last = chunks[0], chunks[-1]
    return Piece(
        first.run_id,
        first.fence,
        first.offset,
        last.offset + len(last.data) - first.offset,
        any(chunk.truncated for chunk in chunks),
        any(chunk.end for chunk in chunks),
    )


def _groups(chunks: Sequence[Stored], start: int, end: int) -> Iterator[list[Stored]]:
    """Chunks that hold bytes from `start` to `end`, as many at a time as may be in memory."""
    group: list[Stored] = []
    size = 0
    for chunk in chunks:
        if chunk.offset + chunk.size <= start or chunk.offset >= end:
            continue
        if group and (size + chunk.size > _READ_AT_ONCE or len(group) == _MOST_READ_AT_ONCE):
            yield group
            group, size = [], 0
        group.append(chunk)
        size += chunk.size
    if group:
        yield group
