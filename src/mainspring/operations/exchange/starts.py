"""Records which runs have started. Only what is shown depends on it, so it waits for no locked row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from uuid import UUID

from mainspring.kernel.clock import Clock
from mainspring.operations.exchange.patience import TOO_LONG, RescuePatience
from mainspring.store import workers
from mainspring.store.pool import Connection, Store
from mainspring.wire.exchange import ExchangeRequest, Start

_TRIES = 3
_MOST_LATE = 10_000


class StartRecorder:
    """A worker tells each start once. A start whose row was held is tried again with the next polls."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._late: dict[tuple[UUID, UUID, int], tuple[float, int]] = {}  # when it began, and how many tries are left

    async def record(self, request: ExchangeRequest, patience: RescuePatience) -> None:
        try:
            async with patience.connection(self._store.hot) as connection:
                await self._note(connection, request.worker_id, request.started, _TRIES)
        except TOO_LONG:
            self._keep(request.worker_id, request.started, _TRIES)

    async def try_again(self) -> None:
        if not self._late:
            return
        late, self._late = self._late, {}
        now = self._clock.monotonic()
        groups: dict[tuple[UUID, int], list[Start]] = defaultdict(list)
        for (worker_id, run_id, fence), (began, tries) in late.items():
            groups[worker_id, tries].append((run_id, fence, (now - began) * 1000.0))
        async with self._store.hot.acquire() as connection:
            for (worker_id, tries), starts in groups.items():
                await self._note(connection, worker_id, starts, tries)

    async def _note(self, connection: Connection, worker_id: UUID, starts: Sequence[Start], tries: int) -> None:
        noted = await workers.note_starts(connection, worker_id, starts)
        if len(noted) < len(starts):  # locked by another transaction, reported before, or no longer the worker's
            self._keep(worker_id, [start for start in starts if start[0] not in noted], tries - 1)

    def _keep(self, worker_id: UUID, starts: Sequence[Start], tries: int) -> None:
        now = self._clock.monotonic()
        for run_id, fence, ago in starts:
            if tries > 0 and len(self._late) < _MOST_LATE:
                self._late[worker_id, run_id, fence] = (now - ago / 1000.0, tries)
