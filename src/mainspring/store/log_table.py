"""Stores the bytes of logs in PostgreSQL, where every server finds them.

All chunks of a shipment are one statement, on connections of their own: output never waits for the connections of
exchanges, nor they for output. A statement that takes too long fails, and the worker gives the log up (docs/logs.md).
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg

from mainspring.domain.errors import Unavailable
from mainspring.domain.log_words import words_in
from mainspring.kernel.ids import TenantId, uuid7_time
from mainspring.store import logs
from mainspring.store.log_failures import LogFailures
from mainspring.store.log_files import FolderChunk, key_of
from mainspring.store.logs import Key, Piece, StoredChunk
from mainspring.store.pool import AWAY, Connection, Store
from mainspring.store.queries import load

_SQL = load("log_chunks")

PATIENCE = 2.0  # seconds for a shipment
_READ_BYTES = 1024 * 1024
_READ_ROWS = 4000
_READS_AT_ONCE = 1  # the other connection is left to writers
_WORTH_PACKING = 200  # bytes: zlib makes less of them, but not much
_MUCH = 32 * 1024  # more than this is compressed in a thread
_FAST = 1  # level of zlib
_ANY_TIME = (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))
_LATEST_ID = 1 << 47  # milliseconds: a time that a datetime has room for
# The database is there, and stores no output.
SLOW_OR_FULL = (
    TimeoutError,
    asyncpg.QueryCanceledError,
    asyncpg.DiskFullError,
    asyncpg.LockNotAvailableError,
    asyncpg.TooManyConnectionsError,
    asyncpg.CheckViolationError,  # there is no partition for today
    asyncpg.TransactionTimeoutError,
)


class LogTable:
    where = "PostgreSQL"

    def __init__(self, store: Store) -> None:
        self._store = store
        self._reading = asyncio.Semaphore(_READS_AT_ONCE)
        self._failures = LogFailures()

    async def record(
        self, tenant: TenantId, worker_id: UUID, pieces: Sequence[Piece], chunks: Sequence[FolderChunk]
    ) -> dict[Key, int]:
        """Store the chunks of logs that continue, and make them valid. Returns those logs, with the number of the
        attempt. Raises Unavailable if that takes too long."""
        much = sum(len(chunk.data) for chunk in chunks if len(chunk.data) >= _WORTH_PACKING) >= _MUCH
        rows = await asyncio.to_thread(_pack_all, chunks) if much else _pack_all(chunks)
        async with self.session() as connection:
            return await logs.record(connection, tenant, worker_id, pieces, rows)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Connection]:
        """A connection for a short time. Raises Unavailable after that."""
        try:
            async with asyncio.timeout(PATIENCE), self._store.logs.acquire() as connection:
                yield connection
        except SLOW_OR_FULL as error:
            raise self._unavailable(error) from error

    async def read(self, folder: str, start: int, end: int) -> AsyncGenerator[tuple[bytes, int], None]:
        """The bytes from `start` to `end`, in parts, each with the offset at which it ends. It ends where a byte is not
        here."""
        position = start
        while position < end:
            data = await self._part(folder, position, min(end, position + _READ_BYTES))
            if not data:
                return
            position += len(data)
            yield data, position

    async def _part(self, folder: str, start: int, end: int) -> bytes:
        key = key_of(folder)
        try:
            async with self._reading, self._store.logs.acquire() as connection:
                for span in _likely_times(key.run_id):
                    rows = await connection.fetch(
                        _SQL["read_chunks"], key.run_id, key.fence, key.tenant, start, end, _READ_ROWS, *span
                    )
                    if rows:
                        break
        except (*AWAY, *SLOW_OR_FULL) as error:
            raise self._unavailable(error) from error
        if sum(row["size"] for row in rows) >= _MUCH:
            return await asyncio.to_thread(joined, rows, start, end)
        return joined(rows, start, end)

    def _unavailable(self, error: Exception) -> Unavailable:
        return self._failures.unavailable(error)


async def keep_chunks(connection: Connection, low: datetime, high: datetime) -> None:
    """Copy what is needed longer than the partition from `low` to `high`."""
    await connection.execute(_SQL["keep_chunks"], low, high)


def _likely_times(run_id: UUID) -> Iterator[tuple[datetime, datetime]]:
    """When the output of a run was stored: probably in the days after the time in its id, otherwise at any time. Then
    few partitions are looked into."""
    if run_id.version == 7 and run_id.int >> 80 < _LATEST_ID:
        created = uuid7_time(run_id)
        yield created - timedelta(days=1), created + timedelta(days=3)
    yield _ANY_TIME


def _pack_all(chunks: Sequence[FolderChunk]) -> list[StoredChunk]:
    return [_row(chunk) for chunk in chunks]


def _row(chunk: FolderChunk) -> StoredChunk:
    _, run_id, fence = key_of(chunk.folder)
    return StoredChunk(run_id, fence, chunk.offset, len(chunk.data), pack(chunk.data), words_in(chunk.data))


def pack(data: bytes) -> bytes:
    if len(data) < _WORTH_PACKING:
        return data
    packed = zlib.compress(data, _FAST)
    return packed if len(packed) < len(data) else data


def joined(rows: Sequence[tuple[int, int, bytes]], start: int, end: int) -> bytes:
    """The bytes from `start` on that the rows contain without a gap."""
    found, position = [], start
    for first_byte, size, data in rows:
        if first_byte > position:
            break
        if first_byte + size <= position:
            continue
        plain = data if len(data) == size else zlib.decompress(data)
        found.append(plain[position - first_byte : end - first_byte])
        position += len(found[-1])
    return b"".join(found)
