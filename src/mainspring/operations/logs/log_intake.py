"""Stores the output that workers ship.

In PostgreSQL, one statement stores the chunks of a shipment and advances the valid length of their logs, if the worker
holds the runs and each log ends where its chunks begin. That is how nearly all output arrives. What does not match,
such as a shipment that is repeated, is looked at first.

In a folder or object store there are three steps: look which runs the worker holds, store the objects, and advance the
valid length in a statement that checks again. So valid bytes always exist, and bytes beyond them are never read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple
from uuid import UUID

from mainspring.domain.errors import InvalidInput
from mainspring.kernel.config import MAX_LOG_CHUNK
from mainspring.kernel.ids import EVERY_TENANT, TenantId
from mainspring.operations.access.caller import Caller
from mainspring.operations.exchange.worker_registry import check_for_notice
from mainspring.operations.logs.log_bounds import LogBudget, cut
from mainspring.store import logs
from mainspring.store.log_files import FolderChunk, LogFiles, folder_of
from mainspring.store.log_stores import LogStore
from mainspring.store.log_table import LogTable
from mainspring.store.logs import FoundLog, Key, Piece
from mainspring.store.pool import Connection, Store
from mainspring.wire.logs import LogChunk, LogReceipt, LogShipment

_LOGS_AT_ONCE = 200  # in one statement, which locks their runs; some of its joins compare all with all


class Arrival(NamedTuple):
    """New chunks of one log, which continue where it ends. `tenant` is that of the run."""

    tenant: TenantId
    attempt: int
    chunks: list[LogChunk]
    piece: Piece

    @property
    def key(self) -> Key:
        return self.piece.run_id, self.piece.fence

    @property
    def folder(self) -> str:
        return folder_of(self.tenant, self.piece.run_id, self.attempt, self.piece.fence)


class LogIntake:
    def __init__(
        self,
        store: Store,
        written: LogStore,
        check_worker: Callable[[Caller, UUID], Awaitable[None]],
        publish: Callable[[Arrival], None],
        budget: LogBudget | None = None,
    ) -> None:
        """`check_worker` raises Forbidden unless the caller speaks for this worker. `publish` is called with what
        counts now. `budget`: the bounds of what is stored in PostgreSQL."""
        self._store = store
        self._written = written
        self._check_worker = check_worker
        self._publish = publish
        self._budget = budget

    async def append(self, caller: Caller, shipment: LogShipment) -> LogReceipt:
        """Store the chunks that continue their logs. The receipt lists what was refused. A shipment can be repeated,
        also at another server. The caller's tenant is the worker's. A log is stored under the tenant of its run."""
        tenant, worker_id = caller.tenant, shipment.worker_id
        by_log = _by_log(shipment.chunks)
        await self._check_worker(caller, worker_id)
        if self._budget is not None:
            await self._budget.know()
        receipt = LogReceipt()
        if expected := self._expected(tenant, by_log):
            for key in await self._store_all(tenant, worker_id, expected):
                receipt.stored += len(by_log.pop(key))
        if by_log:
            await self._append_rest(tenant, worker_id, by_log, receipt)
        if receipt.fenced:
            async with self._store.hot.acquire() as connection:
                await check_for_notice(connection, tenant, worker_id)
        return receipt

    def _expected(self, tenant: TenantId, by_log: Mapping[Key, list[LogChunk]]) -> list[Arrival]:
        """What can be stored without a look: the owner of the runs is known, and so is how much each has stored."""
        if not isinstance(self._written, LogTable) or tenant == EVERY_TENANT:
            return []
        return [
            self._arrival(tenant, 1, chunks[0].offset, chunks) for chunks in by_log.values() if chunks[0].attempt == 1
        ]

    async def _append_rest(
        self, tenant: TenantId, worker_id: UUID, by_log: Mapping[Key, list[LogChunk]], receipt: LogReceipt
    ) -> None:
        async with self._session(chunk for chunks in by_log.values() for chunk in chunks) as connection:
            found = await logs.found(connection, tenant, worker_id, list(by_log))
            of_runs = await self._sizes(connection, found)
        arrivals: list[Arrival] = []
        for key, chunks in by_log.items():
            known = found[key]
            fresh = _fresh(chunks, known)
            if not fresh:
                receipt.stored += len(chunks)
            elif known.attempt is None or known.tenant is None:
                receipt.fenced.append(key[0])
            elif fresh[0].offset != known.bytes:
                receipt.gaps.append(key[0])
            else:
                of_run = of_runs.get(key[0], known.bytes)
                arrivals.append(self._arrival(known.tenant, known.attempt, of_run, fresh))
        counted = await self._store_all(tenant, worker_id, arrivals) if arrivals else {}
        receipt.stored += sum(len(by_log[key]) for key in counted)
        # Something else was faster: the same shipment at another server, or the next holder of the run.
        if left := [arrival.key for arrival in arrivals if arrival.key not in counted]:
            async with self._store.hot.acquire() as connection:
                found = await logs.found(connection, tenant, worker_id, left)
            for key in left:
                if not _fresh(by_log[key], found[key]):
                    receipt.stored += len(by_log[key])
                elif found[key].attempt is None:
                    receipt.fenced.append(key[0])
                else:
                    receipt.gaps.append(key[0])

    async def _sizes(self, connection: Connection, found: Mapping[Key, FoundLog]) -> dict[UUID, int]:
        """The output of runs that have had an earlier attempt."""
        repeated = [run_id for (run_id, _), log in found.items() if log.attempt is not None and log.attempt > 1]
        return await logs.sizes(connection, repeated) if repeated and self._budget is not None else {}

    def _arrival(self, owner: TenantId, attempt: int, of_run: int, chunks: list[LogChunk]) -> Arrival:
        """The chunks as far as the bounds allow. `of_run`: how many bytes the run has stored already."""
        if self._budget is not None:
            kept = cut(chunks, self._budget.room(owner, of_run))
            if _size(kept) < _size(chunks):
                self._budget.tell(owner)
            chunks = kept
        return Arrival(owner, attempt, chunks, _piece(chunks))

    async def _store_all(self, tenant: TenantId, worker_id: UUID, arrivals: Sequence[Arrival]) -> dict[Key, int]:
        """Store what arrived and make it count. Returns what counts, with the number of the attempt."""
        at_once = _LOGS_AT_ONCE if isinstance(self._written, LogTable) else len(arrivals)
        counted: dict[Key, int] = {}
        for start in range(0, len(arrivals), at_once):
            counted |= await self._store_some(tenant, worker_id, arrivals[start : start + at_once])
        return counted

    async def _store_some(self, tenant: TenantId, worker_id: UUID, arrivals: Sequence[Arrival]) -> dict[Key, int]:
        pieces = [arrival.piece for arrival in arrivals]
        new = [
            FolderChunk(arrival.folder, chunk.offset, chunk.data)
            for arrival in arrivals
            for chunk in arrival.chunks
            if chunk.data
        ]
        written = self._written
        if new and isinstance(written, LogTable):
            counted = await written.record(tenant, worker_id, pieces, new)
        else:
            if isinstance(written, LogFiles):
                await written.put_all(new)
            async with self._store.hot.acquire() as connection:
                counted = await logs.advance(connection, tenant, worker_id, pieces)
        for arrival in arrivals:
            if arrival.key in counted:
                if self._budget is not None and arrival.piece.size:
                    self._budget.spend(arrival.tenant, len(arrival.chunks), arrival.piece.size)
                self._publish(arrival._replace(attempt=counted[arrival.key]))
        return counted

    @asynccontextmanager
    async def _session(self, chunks: Iterable[LogChunk]) -> AsyncIterator[Connection]:
        """A connection to look at logs. That a log is given up must be stored also while output cannot be."""
        if isinstance(self._written, LogTable) and any(chunk.data for chunk in chunks):
            async with self._written.session() as connection:
                yield connection
        else:
            async with self._store.hot.acquire() as connection:
                yield connection


def _by_log(chunks: Sequence[LogChunk]) -> dict[Key, list[LogChunk]]:
    """The chunks of each log in the given order. Raises InvalidInput unless each one continues the one before."""
    found: dict[Key, list[LogChunk]] = {}
    for index, chunk in enumerate(chunks):
        before = found.setdefault((chunk.run_id, chunk.fence), [])
        if before and chunk.offset != before[-1].offset + len(before[-1].data):
            raise InvalidInput(
                f"the chunk at {chunk.offset} does not continue the one before it",
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


def _fresh(chunks: Sequence[LogChunk], found: FoundLog) -> list[LogChunk]:
    """The chunks that are not stored yet. An empty chunk only carries a flag, which may be set twice. Of what follows a
    truncated log, only the end is stored."""
    if found.truncated:
        ended = any(chunk.end for chunk in chunks)
        return [_only_flags(chunks[0], found.bytes, ended=ended)] if ended else []
    return [chunk for chunk in chunks if chunk.offset + len(chunk.data) > found.bytes or not chunk.data]


def _only_flags(chunk: LogChunk, offset: int, *, ended: bool) -> LogChunk:
    return LogChunk(chunk.run_id, chunk.fence, chunk.attempt, offset, b"", truncated=True, end=ended)


def _size(chunks: Iterable[LogChunk]) -> int:
    return sum(len(chunk.data) for chunk in chunks)


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
