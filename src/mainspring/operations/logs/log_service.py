"""The logs of runs: takes the output that workers ship, and reads it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import NamedTuple
from uuid import UUID

from mainspring.domain.errors import NotFound
from mainspring.domain.sizes import format_size
from mainspring.domain.transitions import UNKNOWN_STATE
from mainspring.kernel.ids import TenantId
from mainspring.operations.access.caller import Caller
from mainspring.operations.logs.log_bounds import LogBudget
from mainspring.operations.logs.log_bytes import LogBytes
from mainspring.operations.logs.log_intake import Arrival, LogIntake
from mainspring.operations.logs.log_merger import LogMerger
from mainspring.operations.logs.log_ranges import lines_before, lines_from, number_of_line
from mainspring.operations.logs.log_search import LogSearch, Needle
from mainspring.operations.logs.log_watch import LogWatch
from mainspring.store import logs
from mainspring.store.log_files import folder_of
from mainspring.store.log_stores import LogStores
from mainspring.store.logs import NOTHING_PRINTED, LogRow, LogState
from mainspring.store.pool import Store
from mainspring.wire.logs import LogMatches, LogRange, LogReceipt, LogShipment


class WantedLines(NamedTuple):
    """At most `most` lines: from the byte `start` on, before the byte `before`, between both, or the last ones.
    numbered: the number of the first line is wanted too."""

    most: int
    start: int | None = None
    before: int | None = None
    numbered: bool = False


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
        self._intake = LogIntake(store, stores.written, check_worker, self._publish, budget)
        self.watch = watch
        self.bytes = LogBytes(*stores.all)

    async def append(self, caller: Caller, shipment: LogShipment) -> LogReceipt:
        """Store output that a worker ships."""
        return await self._intake.append(caller, shipment)

    def _publish(self, arrival: Arrival) -> None:
        """Tell the followers of the run at this server, and the merger, what counts now."""
        _, attempt, chunks, piece = arrival
        log = LogRow(attempt, piece.fence, piece.offset + piece.size, piece.truncated, piece.ended)
        self.watch.arrived(piece.run_id, log)
        if self._merger is not None:
            sizes = [len(chunk.data) for chunk in chunks]
            self._merger.arrived(arrival.folder, piece.offset, sizes, ended=piece.ended)

    # --- to readers

    async def state(self, caller: Caller, run_id: UUID, attempt: int | None = None) -> LogState:
        """The state of the run and its logs. Raises NotFound if the run or the attempt does not exist."""
        async with self._store.reads.acquire() as connection:
            state = (await logs.states(connection, [(caller.tenant, run_id)])).get(run_id)
        if state is None or (state.state == UNKNOWN_STATE and not caller.reaches_all):
            # Without its run, a log has no queue, task and labels that a narrowed token could reach.
            raise NotFound(f"there is no run {run_id}", hint="see GET /v1/runs")
        begun = max(state.attempt, *state.logs, 0)
        if attempt is not None and not 1 <= attempt <= begun:
            words = f"{begun} so far" if begun else "none yet"
            raise NotFound(f"run {run_id} has no attempt {attempt}", field="attempt", hint=f"it has had {words}")
        return state

    async def read(self, caller: Caller, run_id: UUID, log: LogRow) -> AsyncGenerator[bytes, None]:
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

    async def tail(self, tenant: TenantId, run_id: UUID, most: int) -> str:
        """The last lines of the newest attempt that has a log. Empty if none has one."""
        async with self._store.reads.acquire() as connection:
            state = (await logs.states(connection, [(tenant, run_id)])).get(run_id)
        if state is None or not state.logs:
            return ""
        log = state.logs[max(state.logs)]
        return (await lines_before(self.bytes, folder_of(tenant, run_id, log.attempt, log.fence), log.bytes, most)).text

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
