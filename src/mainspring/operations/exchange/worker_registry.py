"""The workers that exchange at this server: what it caches of each, and which exchanges it refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn
from uuid import UUID

from mainspring.domain.errors import Conflict, Fenced
from mainspring.kernel.clock import Clock
from mainspring.kernel.ids import TenantId
from mainspring.kernel.logs import get_logger
from mainspring.operations.exchange.batched_reads import BatchedReads
from mainspring.operations.exchange.beats import Beats
from mainspring.operations.exchange.hello_bounds import check_hello
from mainspring.operations.submit.signature_registry import SignatureRegistry
from mainspring.store import workers
from mainspring.store.lanes import Lane, LaneRegistry
from mainspring.store.pool import Connection, Store
from mainspring.store.workers import WorkerState
from mainspring.wire.exchange import ExchangeRequest

log = get_logger("exchange")

STALE = "stale_exchange"
CHECK_INTERVAL = 1.0  # seconds between checks of the database for what a lost hint may have hidden
_SILENT = 60.0  # seconds without an exchange: the worker is lost, or uses another server


class CachedWorker:
    """What this server remembers of a worker. It may be lost at any time: everything is read again from the database.

    `checked_at` is when runs to stop were last looked for, `stops_sent` when the worker was last told to stop each of
    these runs, `recalled_at` when it was last asked to return runs.
    """

    __slots__ = (
        "checked_at", "labels", "lane_ids", "lanes", "lanes_revision", "queues", "recalled_at", "state", "stops_sent",
        "tasks", "tenant",
    )  # fmt: skip

    def __init__(
        self, tenant: TenantId, queues: list[str], tasks: list[str], labels: Mapping[str, str], state: int
    ) -> None:
        self.tenant = tenant
        self.queues = queues
        self.tasks = tasks
        self.labels = labels
        self.state = state
        self.lanes_revision = -1
        self.lanes: list[Lane] = []
        self.lane_ids: frozenset[int] = frozenset()
        self.checked_at = float("-inf")
        self.recalled_at = float("-inf")
        self.stops_sent: dict[UUID, float] = {}

    def refresh_lanes(self, lanes: LaneRegistry) -> None:
        """Find the lanes from which the worker may take, if lanes were added since the last call."""
        if self.lanes_revision != lanes.revision:
            self.lanes = lanes.eligible(self.tenant, self.queues, self.tasks, self.labels)
            self.lane_ids = frozenset(lane.lane_id for lane in self.lanes)
            self.lanes_revision = lanes.revision


class WorkerRegistry:
    def __init__(self, store: Store, signatures: SignatureRegistry, beats: Beats, clock: Clock) -> None:
        self._store = store
        self._signatures = signatures
        self._beats = beats
        self._clock = clock
        self._workers: dict[UUID, CachedWorker] = {}
        self._evicted_at = clock.monotonic()
        self._states = BatchedReads(self._read_states)

    def __len__(self) -> int:
        return len(self._workers)

    async def identify(self, tenant: TenantId, request: ExchangeRequest) -> CachedWorker:
        """Return the worker that sends this request, and register it if it says hello. Raise if it is not registered
        or its incarnation has ended."""
        worker = self._workers.get(request.worker_id)
        if worker is not None and worker.tenant != tenant:  # the id of a shared worker is public, but not a credential
            raise _unknown()
        if request.hello is not None:
            hello = request.hello
            check_hello(hello)
            schemas = await self._signatures.read(hello)
            async with self._store.reads.acquire() as connection:
                state = await workers.register(connection, tenant, request.worker_id, hello)
                if state is None:
                    raise _ended(WorkerState.LOST)
                await self._signatures.declare(connection, tenant, hello, schemas)
            worker = CachedWorker(tenant, hello.queues, hello.tasks, hello.labels, state)
            self._workers[request.worker_id] = worker
            log.info("worker registered", worker=str(request.worker_id), name=request.hello.name)
        elif worker is not None:
            if self._clock.monotonic() - worker.checked_at >= CHECK_INTERVAL:
                worker.state = self._checked(request.worker_id, await self._states.get(request.worker_id))
        else:
            async with self._store.reads.acquire() as connection:
                row = await workers.look(connection, tenant, request.worker_id)
            if row is None:
                raise _unknown()
            worker = CachedWorker(
                tenant, row.queues, row.tasks, row.labels, self._checked(request.worker_id, row.state)
            )
            self._workers[request.worker_id] = worker
        return worker

    def _checked(self, worker_id: UUID, state: int | None) -> int:
        """Raise if a worker with this state may not exchange."""
        if state is None:
            raise _unknown()
        if state not in (WorkerState.LIVE, WorkerState.DRAINING):
            self._workers.pop(worker_id, None)
            raise _ended(WorkerState(state))
        return state

    async def _read_states(self, worker_ids: Sequence[UUID]) -> dict[UUID, int]:
        async with self._store.reads.acquire() as connection:
            return await workers.states(connection, worker_ids)

    def evict(self, worker_id: UUID) -> None:
        self._workers.pop(worker_id, None)
        self._beats.forget(worker_id)

    def evict_silent(self) -> None:
        """Evict workers that no longer exchange here. A killed worker never says so, and restarts under a new id."""
        now = self._clock.monotonic()
        if now - self._evicted_at < _SILENT:
            return
        self._evicted_at = now
        for worker_id, worker in list(self._workers.items()):
            if now - worker.checked_at >= _SILENT:
                self.evict(worker_id)

    async def refuse(self, connection: Connection, tenant: TenantId, request: ExchangeRequest) -> NoReturn:
        """Raise the reason why the sequence number of this request was not accepted."""
        row = await workers.look(connection, tenant, request.worker_id)
        self.evict(request.worker_id)
        if row is None:
            raise _unknown()
        if row.state not in (WorkerState.LIVE, WorkerState.DRAINING):
            raise _ended(WorkerState(row.state))
        raise Conflict(
            f"exchange {request.seq} is not newer than {row.last_seq}",
            code=STALE,
            field="seq",
            hint="send the next number with recover and your inventory",
        )


def _unknown() -> Conflict:
    return Conflict("this worker is not registered", code="unknown_worker", hint="send hello under a new worker_id")


def _ended(state: WorkerState) -> Fenced:
    return Fenced(
        f"this worker incarnation is {state.name}; its runs have been given to others",
        hint="end what you run, and send hello under a new worker_id",
    )
