"""Logs: stores the output that workers ship, and reads it.

A shipment is stored in three steps: check which runs the worker holds, store the chunks, and advance the valid length
of the logs in one statement that checks again. So valid bytes always exist, and bytes beyond the valid length are never
read. A chunk that is sent twice counts once. New valid bytes are published to the followers of the run at
this server, and to the merger.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple
from uuid import UUID

from mainspring.domain.errors import InvalidInput, NotFound
from mainspring.domain.sizes import format_size
from mainspring.kernel.config import MAX_LOG_CHUNK
from mainspring.kernel.ids import TenantId
from mainspring.operations.access.caller import Caller
from mainspring.operations.exchange.worker_registry import check_for_notice
from mainspring.operations.logs.log_bounds import LogBudget, cut
from mainspring.operations.logs.log_bytes import LogBytes
from mainspring.operations.logs.log_merger import LogMerger
from mainspring.operations.logs.log_ranges import lines_before, lines_from, number_of_line
from mainspring.operations.logs.log_search import LogSearch, Needle
from mainspring.operations.logs.log_watch import LogWatch
from mainspring.store import logs
from mainspring.store.log_files import Chunk, folder_of
from mainspring.store.log_stores import LogStores
from mainspring.store.logs import NOTHING_PRINTED, FoundLog, Key, LogRow, LogState, Piece
from mainspring.store.pool import Connection, Store
from mainspring.wire.logs import LogChunk, LogMatches, LogRange, LogReceipt, LogShipment


class WantedLines(NamedTuple):
    """At most `most` lines: from the byte `start` on, before the byte `before`, between both, or the last ones.
    numbered: the number of the first line is wanted too."""

    most: int
    start: int | None = None
    before: int | None = None
    numbered: bool = False


class _Arrival(NamedTuple):
    """New chunks of one log, which continue where it ends."""

    folder: str
    attempt: int
    chunks: list[LogChunk]
    piece: Piece


class LogService:
    def __init__(
        self,
        store: Store,
        stores: LogStores,
        watch: LogWatch,
        merger: LogMerger | None,
        check_worker: Callable[[Caller, UUID], Awaitable[None]],
        budget: LogBudget | None = None,
    ) -> None:
        """`merger`: None if new output is not stored as objects. `budget`: the bounds of what is stored in PostgreSQL.
        `check_worker` raises Forbidden unless the caller speaks for this worker."""
        self._store = store
        self.stores = stores
        self._merger = merger
        self._check_worker = check_worker
        self._budget = budget
        self.watch = watch
        self.bytes = LogBytes(*stores.all)

    # --- from workers

    async def append(self, caller: Caller, shipment: LogShipment) -> LogReceipt:
        """Store the chunks that continue their logs. The receipt lists what was refused. A shipment can be repeated,
        also at another server. The caller's tenant is the worker's. A log is stored under the tenant of its run."""
        tenant = caller.tenant
        by_log = _by_log(shipment.chunks)
        await self._check_worker(caller, shipment.worker_id)
        async with self._store.hot.acquire() as connection:
            found = await logs.found(connection, tenant, shipment.worker_id, list(by_log))
            of_runs = await self._sizes(connection, found)
        if self._budget is not None:
            await self._budget.know()
        receipt = LogReceipt()
        arrivals: list[_Arrival] = []
        new: list[Chunk] = []
        for key, chunks in by_log.items():
            known = found[key]
            fresh = _fresh(chunks, known)
            attempt, owner = known.attempt, known.tenant
            if not fresh:
                receipt.stored += len(chunks)
            elif attempt is None or owner is None:
                receipt.fenced.append(key[0])
            elif fresh[0].offset != known.bytes:
                receipt.gaps.append(key[0])
            else:
                fresh = self._within_bounds(owner, of_runs.get(key[0], known.bytes), fresh)
                folder = folder_of(owner, key[0], attempt, key[1])
                new += [Chunk(folder, chunk.offset, chunk.data) for chunk in fresh if chunk.data]
                arrivals.append(_Arrival(folder, attempt, fresh, _piece(fresh)))
        if arrivals:
            if new:
                await self.stores.written.put_all(new)
            await self._count(tenant, shipment.worker_id, arrivals, by_log, receipt)
        if receipt.fenced:
            async with self._store.hot.acquire() as connection:
                await check_for_notice(connection, tenant, shipment.worker_id)
        return receipt

    async def _sizes(self, connection: Connection, found: dict[Key, FoundLog]) -> dict[UUID, int]:
        """The output of runs that have had an earlier attempt."""
        repeated = [run_id for (run_id, _), log in found.items() if log.attempt is not None and log.attempt > 1]
        return await logs.sizes(connection, repeated) if repeated and self._budget is not None else {}

    def _within_bounds(self, owner: TenantId, of_run: int, fresh: list[LogChunk]) -> list[LogChunk]:
        if self._budget is None:
            return fresh
        size = sum(len(chunk.data) for chunk in fresh)
        kept = cut(fresh, self._budget.room(owner, of_run))
        kept_size = sum(len(chunk.data) for chunk in kept)
        if kept_size < size:
            self._budget.tell(owner)
        if kept_size:
            self._budget.spend(owner, len(kept), kept_size)
        return kept

    async def _count(
        self,
        tenant: TenantId,
        worker_id: UUID,
        arrivals: list[_Arrival],
        by_log: dict[Key, list[LogChunk]],
        receipt: LogReceipt,
    ) -> None:
        keys = [(arrival.piece.run_id, arrival.piece.fence) for arrival in arrivals]
        async with self._store.hot.acquire() as connection:
            counted = await logs.advance(connection, tenant, worker_id, [arrival.piece for arrival in arrivals])
            left = [key for key in keys if key not in counted]
            found = await logs.found(connection, tenant, worker_id, left) if left else {}
        for key, arrival in zip(keys, arrivals, strict=True):
            if key in counted:
                receipt.stored += len(by_log[key])
                self._publish(arrival)
        # Something else was faster: the same shipment at another server, or the next holder of the run.
        for key in left:
            if not _fresh(by_log[key], found[key]):
                receipt.stored += len(by_log[key])
            elif found[key].attempt is None:
                receipt.fenced.append(key[0])
            else:
                receipt.gaps.append(key[0])

    def _publish(self, arrival: _Arrival) -> None:
        folder, attempt, chunks, piece = arrival
        end = piece.offset + piece.size
        log = LogRow(attempt, piece.fence, end, piece.truncated, piece.ended)
        self.watch.arrived(piece.run_id, log)
        if self._merger is not None:
            self._merger.arrived(folder, piece.offset, [len(chunk.data) for chunk in chunks], ended=piece.ended)

    # --- to readers

    async def state(self, caller: Caller, run_id: UUID, attempt: int | None = None) -> LogState:
        """The state of the run and its logs. Raises NotFound if the run or the attempt does not exist."""
        async with self._store.reads.acquire() as connection:
            state = (await logs.states(connection, [(caller.tenant, run_id)])).get(run_id)
        if state is None:
            raise NotFound(f"there is no run {run_id}", hint="see GET /v1/runs")
        begun = max(state.attempt, *state.logs, 0)
        if attempt is not None and not 1 <= attempt <= begun:
            words = f"{begun} so far" if begun else "none yet"
            raise NotFound(f"run {run_id} has no attempt {attempt}", field="attempt", hint=f"it has had {words}")
        return state

    async def read(self, caller: Caller, run_id: UUID, log: LogRow) -> AsyncIterator[bytes]:
        """All valid bytes, and a visible line if the output was truncated. It needs a few MiB of memory."""
        async for piece in self.bytes.read(folder_of(caller.tenant, run_id, log.attempt, log.fence), 0, log.bytes):
            yield piece.data
        if log.truncated:
            yield truncation_mark(log).encode()

    async def lines(self, caller: Caller, run_id: UUID, attempt: int | None, wanted: WantedLines) -> LogRange:
        """Some lines of an attempt's log, or of the newest one."""
        state = await self.state(caller, run_id, attempt)
        number = attempt or state.attempt
        log = state.logs.get(number, NOTHING_PRINTED)
        folder = folder_of(caller.tenant, run_id, log.attempt, log.fence)
        before = log.bytes if wanted.before is None else min(wanted.before, log.bytes)
        if wanted.start is not None:
            found = await lines_from(self.bytes, folder, before, wanted.start, wanted.most)
        else:
            found = await lines_before(self.bytes, folder, before, wanted.most)
        line = await number_of_line(self.bytes, folder, found.start) if wanted.numbered else None
        ended = state.has_ended(number)
        return LogRange(number, found.start, found.end, log.bytes, found.text, line, log.truncated, ended)

    async def search(
        self, caller: Caller, run_id: UUID, attempt: int | None, text: str, *, start: int, limit: int
    ) -> LogMatches:
        """The first lines after the byte `start` that contain the text, as far as one search gets."""
        state = await self.state(caller, run_id, attempt)
        number = attempt or state.attempt
        log = state.logs.get(number, NOTHING_PRINTED)
        ended = state.has_ended(number)
        search = LogSearch(Needle(text), min(start, log.bytes), log.bytes, limit, ended=ended)
        found = await search.run(self.bytes, folder_of(caller.tenant, run_id, log.attempt, log.fence))
        return LogMatches(number, found.matches, found.to, log.bytes, found.more, ended)


def truncation_mark(log: LogRow) -> str:
    """The last line of a truncated log."""
    return f"\n[mainspring: output truncated at {format_size(log.bytes)}]\n"


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
