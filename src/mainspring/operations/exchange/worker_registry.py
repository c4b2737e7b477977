"""The workers that exchange at this server: what it caches of each, and which exchanges it refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn
from uuid import UUID

import msgspec

from mainspring.domain.errors import Conflict, Fenced, Forbidden, Unavailable
from mainspring.domain.narrowing import Narrowing
from mainspring.domain.worker_state import WORKER_LABEL
from mainspring.kernel import metrics
from mainspring.kernel.clock import Clock
from mainspring.kernel.config import Timing
from mainspring.kernel.ids import TenantId
from mainspring.kernel.logs import get_logger
from mainspring.operations.access.caller import Caller
from mainspring.operations.exchange.batched_reads import BatchedReads
from mainspring.operations.exchange.beats import Beats
from mainspring.operations.exchange.hello_bounds import MOST_WORKERS, check_hello, too_many_workers
from mainspring.operations.exchange.incarnation_proof import Binding
from mainspring.operations.exchange.patience import TOO_LONG, RescuePatience
from mainspring.operations.exchange.worker_counts import WorkerCounts
from mainspring.operations.signatures.signature_registry import SignatureRegistry
from mainspring.store import workers
from mainspring.store.lanes import Lane, LaneRegistry
from mainspring.store.pool import Connection, Store
from mainspring.store.workers import WorkerState
from mainspring.wire.exchange import ExchangeRequest, LeaseGrant, WorkerHello
from mainspring.wire.protocol import TAKES_SECRETS, TELLS_STARTS

log = get_logger("exchange")

_ALIVE = (WorkerState.LIVE, WorkerState.DRAINING)

STALE = "stale_exchange"
CHECK_INTERVAL = 1.0  # seconds between checks of the database for what a lost hint may have hidden
_NUMBERS = 4  # that are remembered: a worker has up to three exchanges under way
_SILENT = 60.0  # seconds without an exchange: the worker is lost, or uses another server


class HelloDelayed(Exception):
    """The hello of a worker that is registered and alive could not be recorded in time. The worker sends it again."""


class CachedWorker:
    """What this server remembers of a worker. It may be lost at any time: everything is read again from the database.

    `checked_at` is when runs to stop were last looked for, `stops_sent` when the worker was last told to stop each of
    these runs, `recalled_at` when it was last asked to return runs, `pauses_checked_at` when its runs of paused queues
    were last looked for, and by which revision of the gates, `numbers` the newest sequence numbers that came here, in
    their order.
    """

    __slots__ = (
        "binding", "checked_at", "labels", "lane_ids", "lanes", "lanes_revision", "numbers", "pauses_checked_at",
        "queues", "recalled_at", "slots", "state", "stops_sent", "takes_secrets", "tasks", "tells_starts", "tenant",
    )  # fmt: skip

    def __init__(
        self,
        tenant: TenantId,
        queues: list[str],
        tasks: list[str],
        labels: Mapping[str, str],
        state: int,
        protocol: int,
        binding: Binding,
        slots: int,
    ) -> None:
        self.tenant = tenant
        self.slots = slots
        self.binding = binding
        self.queues = queues
        self.tasks = tasks
        self.labels = labels
        self.state = state
        self.tells_starts = protocol >= TELLS_STARTS
        self.takes_secrets = protocol >= TAKES_SECRETS
        self.lanes_revision = -1
        self.lanes: list[Lane] = []
        self.lane_ids: frozenset[int] = frozenset()
        self.checked_at = float("-inf")
        self.recalled_at = float("-inf")
        self.pauses_checked_at = (float("-inf"), -1)
        self.stops_sent: dict[UUID, float] = {}
        self.numbers: tuple[int, ...] = ()

    def is_late(self, seq: int) -> bool:
        """Whether a newer exchange came here before this one, which comes for the first time. Raise if it came before,
        or if that is not known: its reply may be lost, so the worker must recover."""
        if not self.numbers or seq >= self.numbers[-1]:
            return False
        if seq in self.numbers or seq < self.numbers[0]:
            raise stale(seq, self.numbers[-1])
        return True

    def note_number(self, seq: int) -> None:
        if not self.numbers or seq > self.numbers[-1]:
            self.numbers = (*self.numbers[1 - _NUMBERS :], seq)
        elif seq not in self.numbers:
            self.numbers = tuple(sorted((*self.numbers, seq)))[-_NUMBERS:]

    def refresh_lanes(self, lanes: LaneRegistry) -> None:
        """Find the lanes from which the worker may take, if lanes were added since the last call."""
        if self.lanes_revision != lanes.revision:
            self.lanes = lanes.eligible(self.tenant, self.queues, self.tasks, self.labels)
            self.lane_ids = frozenset(lane.lane_id for lane in self.lanes)
            self.lanes_revision = lanes.revision


class WorkerRegistry:
    def __init__(self, store: Store, signatures: SignatureRegistry, beats: Beats, clock: Clock, timing: Timing) -> None:
        self._store = store
        self._timing = timing
        self._signatures = signatures
        self._beats = beats
        self._clock = clock
        self._workers: dict[UUID, CachedWorker] = {}
        self._evicted_at = clock.monotonic()
        self._states = BatchedReads(self._read_states)
        self._counts = WorkerCounts(clock)

    def __len__(self) -> int:
        return len(self._workers)

    async def identify(self, caller: Caller, request: ExchangeRequest, patience: RescuePatience) -> CachedWorker:
        """Return the worker that sends this request, and register it if it says hello. Raise if it is not registered,
        its incarnation has ended, or another process sends the request; or HelloDelayed."""
        tenant = caller.tenant
        worker = self._workers.get(request.worker_id)
        if worker is not None:
            if worker.tenant != tenant:  # the id of a shared worker is public, but not a credential
                raise _unknown()
            worker.binding.check(caller, request.worker_id)
        if request.hello is not None:
            before = worker
            worker = await self._register(caller, request, request.hello, patience, known=before is not None)
            if before is not None:
                worker.numbers = before.numbers
        elif worker is None:
            worker = self._cache(tenant, request.worker_id, await self._read_row(caller, request.worker_id, patience))
        elif not request.outcomes and self._clock.monotonic() - worker.checked_at >= CHECK_INTERVAL:
            # One that reports reads the row under its lock.
            known = await self._states.get(request.worker_id) or WorkerState.LOST
            worker.state = (
                known if known in _ALIVE else (await self._read_row(caller, request.worker_id, patience)).state
            )
        return worker

    async def _register(
        self, caller: Caller, request: ExchangeRequest, hello: WorkerHello, patience: RescuePatience, *, known: bool
    ) -> CachedWorker:
        """`known`: the incarnation is registered already, as this server remembers."""
        tenant = caller.tenant
        check_hello(hello)
        if caller.narrowing is not None:
            hello = _narrowed(hello, caller.narrowing)
        schemas = await self._signatures.read(tenant, hello)
        lease = self._timing.granted(hello.lease)
        try:
            async with patience.connection(self._store.reads) as connection:
                if not known and await self._counts.is_full(connection, tenant, request.worker_id, MOST_WORKERS):
                    raise too_many_workers()
                state = await workers.register(
                    connection, tenant, request.worker_id, hello,
                    secret_hash=caller.secret_hash, token_id=caller.credential,
                    rescue_after=lease.rescue, exclusive_rescue_after=lease.exclusive_rescue,
                    patience=patience.for_locks(),
                )  # fmt: skip
                if state is None:
                    row = await workers.registration(connection, tenant, request.worker_id)
                    if row is not None:
                        _binding(row).check(caller, request.worker_id)
                        _count_if_noticed(request.worker_id, row)
                    raise _ended(WorkerState.LOST)
                news = False
                if await self._signatures.differs(connection, tenant, hello, schemas):
                    async with patience.transaction(connection):
                        news = await self._signatures.declare(connection, tenant, hello, schemas)
                if request.seq > 1 and hello.protocol >= TELLS_STARTS:
                    # The first hello goes to a server of unknown protocol, and has no protocol in it.
                    await workers.forget_assumed_starts(connection, request.worker_id)
                if news:
                    await self._signatures.refresh(connection, tenant)
        except TOO_LONG as error:
            log.warning("hello not recorded yet", worker=str(request.worker_id), error=repr(error))
            await self._read_row(caller, request.worker_id, patience, hello=True)
            raise HelloDelayed from error
        binding = Binding(caller.secret_hash, caller.credential)
        labels = {**hello.labels, WORKER_LABEL: str(request.worker_id)}
        worker = CachedWorker(tenant, hello.queues, hello.tasks, labels, state, hello.protocol, binding, hello.slots)
        self._workers[request.worker_id] = worker
        log.detail("worker registered", worker=str(request.worker_id), name=hello.name)
        return worker

    async def check(self, caller: Caller, worker_id: UUID) -> None:
        """Raise Forbidden unless this worker sends the request. A worker that does not exist has nothing to guard."""
        worker = self._workers.get(worker_id)
        if worker is not None and worker.tenant == caller.tenant:
            worker.binding.check(caller, worker_id)
        elif (
            worker is None
            and (row := await self._bound_row(caller, worker_id, RescuePatience(self._clock))) is not None
        ):
            _binding(row).check(caller, worker_id)
            if row.state in _ALIVE:
                self._cache(caller.tenant, worker_id, row)

    def _cache(self, tenant: TenantId, worker_id: UUID, row: workers.Registration) -> CachedWorker:
        labels = {**row.labels, WORKER_LABEL: str(worker_id)}
        worker = CachedWorker(tenant, row.queues, row.tasks, labels, row.state, row.protocol, _binding(row), row.slots)
        self._workers[worker_id] = worker
        return worker

    async def _bound_row(
        self, caller: Caller, worker_id: UUID, patience: RescuePatience
    ) -> workers.Registration | None:
        """The row of a worker, bound to this caller if it was bound to nothing."""
        async with self._store.for_short_reads().acquire() as connection:
            row = await workers.registration(connection, caller.tenant, worker_id)
        if row is None or not _binding(row).empty:
            return row
        try:
            async with patience.connection(self._store.hot) as connection:
                await workers.bind(
                    connection, worker_id, caller.secret_hash, caller.credential, patience.for_locks()
                )  # if another process was faster, the row says so
                return await workers.registration(connection, caller.tenant, worker_id)
        except TOO_LONG as error:
            raise Unavailable("the worker's row is locked", hint="try again") from error

    async def _read_row(
        self, caller: Caller, worker_id: UUID, patience: RescuePatience, *, hello: bool = False
    ) -> workers.Registration:
        """The row of a worker that is alive and sends this request. `hello`: the worker has said who it is, and may
        send it again."""
        row = await self._bound_row(caller, worker_id, patience)
        if row is None:
            raise Unavailable("the hello could not be recorded in time", hint="try again") if hello else _unknown()
        _binding(row).check(caller, worker_id)
        if row.state not in _ALIVE:
            self._workers.pop(worker_id, None)
            _count_if_noticed(worker_id, row)
            raise _ended(WorkerState(row.state))
        return row

    async def _read_states(self, worker_ids: Sequence[UUID]) -> dict[UUID, int]:
        async with self._store.for_short_reads().acquire() as connection:
            return await workers.states(connection, worker_ids)

    def evict(self, worker_id: UUID) -> None:
        self._workers.pop(worker_id, None)
        self._beats.forget(worker_id)

    def grant_of(self, request: ExchangeRequest) -> LeaseGrant | None:
        """The lease that `identify` has stored for this request. None if it asks for none."""
        if request.hello is None or request.hello.lease is None:
            return None
        lease = self._timing.granted(request.hello.lease)
        return LeaseGrant(lease.kill, lease.exclusive_kill)

    def evict_silent(self) -> None:
        """Evict workers that no longer exchange here. A killed worker never says so, and restarts under a new id."""
        now = self._clock.monotonic()
        if now - self._evicted_at < _SILENT:
            return
        self._evicted_at = now
        for worker_id, worker in list(self._workers.items()):
            if now - worker.checked_at >= _SILENT:
                self.evict(worker_id)

    async def refuse(
        self, connection: Connection, tenant: TenantId, request: ExchangeRequest, *, waited: bool = False
    ) -> NoReturn:
        """Raise the reason why the sequence number of this request was not accepted. `waited`: it arrived long ago, and
        its worker may have died meanwhile."""
        row = await workers.registration(connection, tenant, request.worker_id)
        self.evict(request.worker_id)
        if row is None:
            raise _unknown()
        if row.state not in (WorkerState.LIVE, WorkerState.DRAINING):
            if not waited:
                _count_if_noticed(request.worker_id, row)
            raise _ended(WorkerState(row.state))
        raise stale(request.seq, row.last_seq)


def _narrowed(hello: WorkerHello, reach: Narrowing) -> WorkerHello:
    """What the worker offers, without the queues and tasks that its token does not reach."""
    queues = [queue for queue in hello.queues if reach.has_queue(queue)]
    tasks = [task for task in hello.tasks if reach.has_task(task)]
    if not queues or not tasks:
        what, known = ("queues", reach.queues) if not queues else ("tasks", reach.tasks)
        raise Forbidden(
            f"the token of this worker reaches none of its {what}", code="outside_token", field=f"hello.{what}",
            expected="one of " + ", ".join(known or ()), hint="start the worker with others, or with another token",
        )  # fmt: skip
    return msgspec.structs.replace(hello, queues=queues, tasks=tasks)


def stale(seq: int, newest: int) -> Conflict:
    return Conflict(
        f"exchange {seq} is not newer than {newest}", code=STALE, field="seq",
        hint="send the next number with recover and your inventory",
    )  # fmt: skip


def _unknown() -> Conflict:
    return Conflict("this worker is not registered", code="unknown_worker", hint="send hello under a new worker_id")


def _ended(state: WorkerState) -> Fenced:
    return Fenced(
        f"this worker incarnation is {state.name}; its runs have been given to others",
        hint="end what you run, and send hello under a new worker_id",
    )


def _binding(row: workers.Registration) -> Binding:
    return Binding(row.secret_hash, row.token_id)


async def check_for_notice(connection: Connection, tenant: TenantId, worker_id: UUID) -> None:
    """Count and log a request of a worker whose death notice was taken."""
    row = await workers.registration(connection, tenant, worker_id)
    if row is not None:
        _count_if_noticed(worker_id, row)


def _count_if_noticed(worker_id: UUID, row: workers.Registration) -> None:
    """A request after the notice was late on the network, or the notice was wrong. It is refused in both cases."""
    if row.notice_at is not None:
        metrics.heard_after_notice.inc()
        log.warning("refused a worker that was heard after its death notice", worker=str(worker_id))
