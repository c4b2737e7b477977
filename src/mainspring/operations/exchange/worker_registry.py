"""The workers that exchange at this server: what it remembers of each, and whom it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from mainspring.domain.errors import Conflict, Fenced
from mainspring.kernel.clock import Clock
from mainspring.kernel.ids import TenantId
from mainspring.kernel.logs import get_logger
from mainspring.operations.exchange.beats import Beats
from mainspring.operations.submit.signature_registry import SignatureRegistry
from mainspring.store import workers
from mainspring.store.lanes import Lane
from mainspring.store.pool import Connection, Store
from mainspring.store.workers import WorkerState
from mainspring.wire.exchange import ExchangeRequest

log = get_logger("exchange")

STALE = "stale_exchange"
STOP_LOOK = 1.0  # seconds between looks for runs to stop, should the hint have been lost
_SILENT = 60.0  # seconds without an exchange: the worker is lost, or asks elsewhere


class KnownWorker:
    """What this server remembers of a worker; a cache that may be lost at any time."""

    __slots__ = (
        "labels", "lane_ids", "lanes", "queues", "recalled_at", "revision", "state", "stop_looked_at", "tasks",
        "tenant", "told",
    )  # fmt: skip

    def __init__(
        self, tenant: TenantId, queues: list[str], tasks: list[str], labels: Mapping[str, str], state: int
    ) -> None:
        self.tenant = tenant
        self.queues = queues
        self.tasks = tasks
        self.labels = labels
        self.state = state
        self.revision = -1
        self.lanes: list[Lane] = []
        self.lane_ids: frozenset[int] = frozenset()
        self.stop_looked_at = float("-inf")
        self.recalled_at = float("-inf")
        self.told: dict[UUID, float] = {}


class WorkerRegistry:
    def __init__(self, store: Store, signatures: SignatureRegistry, beats: Beats, clock: Clock) -> None:
        self._store = store
        self._signatures = signatures
        self._beats = beats
        self._clock = clock
        self._known: dict[UUID, KnownWorker] = {}
        self._swept_at = clock.monotonic()

    def __len__(self) -> int:
        return len(self._known)

    async def know(self, tenant: TenantId, request: ExchangeRequest) -> KnownWorker:
        """The worker that sends this; raises when it is not registered, or its incarnation is over."""
        known = self._known.get(request.worker_id)
        if known is not None and known.tenant != tenant:  # a shared worker's id is no secret, but not theirs to use
            raise _unknown()
        if request.hello is not None:
            async with self._store.reads.acquire() as connection:
                state = await workers.register(connection, tenant, request.worker_id, request.hello)
                if state is None:
                    raise _gone(WorkerState.LOST)
                await self._signatures.hear(connection, tenant, request.hello)
            hello = request.hello
            known = KnownWorker(tenant, hello.queues, hello.tasks, hello.labels, state)
            self._known[request.worker_id] = known
            log.info("worker registered", worker=str(request.worker_id), name=request.hello.name)
        elif known is None or self._clock.monotonic() - known.stop_looked_at >= STOP_LOOK:
            async with self._store.reads.acquire() as connection:
                row = await workers.look(connection, tenant, request.worker_id)
            if row is None:
                raise _unknown()
            if row.state not in (WorkerState.LIVE, WorkerState.DRAINING):
                self._known.pop(request.worker_id, None)
                raise _gone(WorkerState(row.state))
            if known is None:
                known = KnownWorker(tenant, row.queues, row.tasks, row.labels, row.state)
                self._known[request.worker_id] = known
            known.state = row.state
        return known

    def forget(self, worker_id: UUID) -> None:
        self._known.pop(worker_id, None)
        self._beats.forget(worker_id)

    def forget_the_silent(self) -> None:
        """A worker that was killed never says goodbye, and its next start is another one."""
        now = self._clock.monotonic()
        if now - self._swept_at < _SILENT:
            return
        self._swept_at = now
        for worker_id, known in list(self._known.items()):
            if now - known.stop_looked_at >= _SILENT:
                self.forget(worker_id)

    async def refuse(self, connection: Connection, tenant: TenantId, request: ExchangeRequest) -> None:
        """Say why its number was not taken: always raises."""
        row = await workers.look(connection, tenant, request.worker_id)
        self.forget(request.worker_id)
        if row is None:
            raise _unknown()
        if row.state not in (WorkerState.LIVE, WorkerState.DRAINING):
            raise _gone(WorkerState(row.state))
        raise Conflict(
            f"exchange {request.seq} is not newer than {row.last_seq}",
            code=STALE,
            field="seq",
            hint="send the next number with recover and your inventory",
        )


def _unknown() -> Conflict:
    return Conflict("this worker is not registered", code="unknown_worker", hint="send hello under a new worker_id")


def _gone(state: WorkerState) -> Fenced:
    return Fenced(
        f"this worker incarnation is {state.name}; its runs have been given to others",
        hint="end what you run, and send hello under a new worker_id",
    )
