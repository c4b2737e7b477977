"""The exchange: heartbeat, report, claim and stop in one call. It is safe to repeat, also at another server.

Every exchange carries a sequence number that rises. The transaction locks the worker's row and takes the number, so a
late copy of an exchange changes nothing. A claim is written in `runs` with the incarnation and the number, never kept
in a server's memory. A worker that missed a reply says so (`recover`) and lists what it holds; everything else that the
rows assign to it is handed out again. An outcome must match run, fence and incarnation; one that was recorded before is
acknowledged again.

One `Exchange` passes through these steps:

    identify the worker     worker_registry.py
    record starts, progress before the exchange can be superseded
    in rounds, until there is something to reply:
        update the demand   what the exchange would take
        transaction         transaction.py: sequence number, outcomes, redelivery, claim; groups.py: with others
        check for stops     stops.py
        recall              recall.py: ask for unstarted runs that idle workers could start, or whose queue is paused
        wait                claim/long_poll.py; hand_off.py: fresh runs are assigned to it meanwhile

The heartbeat is recorded meanwhile (beats.py). The reply acknowledges it, so it is sent after the heartbeat's commit.

A row that another transaction holds, such as that of a server which is stopped, or a pool without a free connection
does not delay the reply by more than a second (patience.py). The reply says then that the exchange was superseded. The
worker keeps its lease, and sends its hello and its outcomes again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from uuid import UUID

from mainspring.domain.errors import Conflict
from mainspring.kernel import metrics
from mainspring.kernel.clock import Clock, DatabaseClock
from mainspring.kernel.config import Timing
from mainspring.kernel.ids import EVERY_TENANT, TenantId
from mainspring.kernel.logs import get_logger
from mainspring.operations.access.caller import Caller
from mainspring.operations.claim.claimer import Claimer
from mainspring.operations.claim.long_poll import LongPolls
from mainspring.operations.claim.ready_check import ReadyCheck
from mainspring.operations.exchange.beats import Beats
from mainspring.operations.exchange.exchange import Exchange, reports
from mainspring.operations.exchange.hand_off import HandOffs
from mainspring.operations.exchange.patience import TOO_LONG, RescuePatience
from mainspring.operations.exchange.paused_runs import PausedRuns
from mainspring.operations.exchange.recall import recall_unstarted
from mainspring.operations.exchange.starts import StartRecorder
from mainspring.operations.exchange.stops import StopCheck
from mainspring.operations.exchange.transaction import ExchangeTransaction
from mainspring.operations.exchange.worker_registry import STALE, HelloDelayed, WorkerRegistry
from mainspring.operations.lifecycle.decide import Random
from mainspring.operations.limits.gate_registry import GateRegistry
from mainspring.operations.limits.gate_waker import GateWaker
from mainspring.operations.secrets.handing_out import SecretHandout
from mainspring.operations.signals import Signals
from mainspring.operations.signatures.signature_registry import SignatureRegistry
from mainspring.store import workers
from mainspring.store.claimed_runs import ClaimedRun
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import AWAY, Store
from mainspring.store.workers import WorkerState
from mainspring.wire.exchange import ExchangeReply, ExchangeRequest

log = get_logger("exchange")

_FOR_PROGRESS = 0.2  # seconds
_RETRY_LEAST = 0.5  # seconds


class Exchanger:
    def __init__(
        self,
        store: Store,
        lanes: LaneRegistry,
        signals: Signals,
        long_polls: LongPolls,
        beats: Beats,
        clock: Clock,
        database_clock: DatabaseClock,
        timing: Timing,
        random: Random,
        signatures: SignatureRegistry,
        gates: GateRegistry,
        secrets: SecretHandout,
    ) -> None:
        self._store = store
        self._lanes = lanes
        self._signals = signals
        self._long_polls = long_polls
        self._beats = beats
        self._clock = clock
        self._timing = timing
        self._random = random
        self._claimer = Claimer(lanes, clock, database_clock)
        self._registry = WorkerRegistry(store, signatures, beats, clock, timing)
        self._gates = gates
        self.waker = GateWaker(store, gates, lanes, long_polls, self._claimer, signals)
        self._transaction = ExchangeTransaction(
            store, self._registry, self._claimer, lanes, gates, self.waker, signals, clock, random, secrets
        )
        self.hand_offs = HandOffs(store, long_polls, self._claimer, gates, lanes)
        self._ready_check = ReadyCheck(self._ready_lanes)
        self._starts = StartRecorder(store, clock)
        self._stop_check = StopCheck(store, clock, timing)
        self._paused_runs = PausedRuns(store, gates)
        self._active: set[Exchange] = set()
        self._lanes_revision = -1
        self._lane_loads: set[asyncio.Task[None]] = set()
        signals.ready.subscribe(self._on_ready)
        signals.stop.subscribe(long_polls.request_stop)

    @property
    def workers(self) -> int:
        """How many workers are cached here."""
        return len(self._registry)

    async def check_worker(self, caller: Caller, worker_id: UUID) -> None:
        """Raise Forbidden unless this worker sends the request."""
        await self._registry.check(caller, worker_id)

    def forget(self, worker_id: UUID) -> None:
        """The incarnation has ended: drop what is cached of it, and offer no runs to an exchange that still waits."""
        self._registry.evict(worker_id)
        self._long_polls.disconnect_worker(worker_id)

    async def exchange(
        self, caller: Caller, request: ExchangeRequest, before_wait: Callable[[], None] | None = None
    ) -> ExchangeReply:
        tenant = caller.tenant
        arrived_at = self._clock.monotonic()
        patience = RescuePatience(self._clock)
        try:
            worker = await self._registry.identify(caller, request, patience)
        except HelloDelayed:
            await self._beats.record(request.worker_id)
            return _counted(ExchangeReply(seq=request.seq, superseded=True, retry_in=self._retry_in()))
        if not reports(request) and worker.is_late(request.seq):
            await self._beats.record(request.worker_id)
            return _counted(ExchangeReply(seq=request.seq, superseded=True))
        worker.note_number(request.seq)
        # This comes before the long poll is registered. From then on a newer exchange may end this one.
        if request.started:
            await self._starts.record(request, patience)
        stale_progress = await self._record_progress(tenant, request, patience) if request.progress else []
        if request.started or request.progress:
            self._signals.exchanged.publish(tenant, request, None)
        waiter = self._long_polls.register(request.worker_id, tenant, request.seq)
        metrics.waiting.set(len(self._long_polls))
        deadline = self._clock.monotonic() + min(request.wait_ms / 1000, self._timing.beat)
        exchange = Exchange(
            tenant, request, worker, waiter, ExchangeReply(seq=request.seq), arrived_at, deadline, patience,
            before_wait=before_wait,
        )  # fmt: skip
        self._active.add(exchange)
        try:
            fresh = self._beats.is_fresh(request.worker_id)
            heartbeat = None if fresh else asyncio.create_task(self._beats.record(request.worker_id))
            try:
                await self._serve(exchange)
                if request.outcomes or exchange.reply.runs:
                    self._signals.exchanged.publish(tenant, request, exchange.reply)
                exchange.reply.fenced += stale_progress
                exchange.reply.lease = self._registry.grant_of(request)
                exchange.reply.all_tenants = request.hello is not None and tenant == EVERY_TENANT
            finally:
                if heartbeat is not None:
                    await heartbeat
            return _counted(exchange.reply)
        finally:
            self._active.discard(exchange)
            self._long_polls.release(waiter)
            metrics.exchange_seconds.observe(self._clock.monotonic() - arrived_at - exchange.seconds_waited)

    async def _serve(self, exchange: Exchange) -> None:
        """Go through rounds until the reply says something or the deadline has passed."""
        request, worker, waiter = exchange.request, exchange.worker, exchange.waiter
        handed: list[ClaimedRun] = []
        while True:
            exchange.update_demand(self._lanes)
            try:
                if handed:
                    await self._transaction.hand_out(exchange, handed)
                elif exchange.must_write or await self._may_claim(exchange):
                    await self._transaction.run(exchange)
            except Conflict as error:
                # The worker has sent a newer exchange: to this server, or to another one while this one waited.
                if error.code == STALE and (exchange.waited or waiter.superseded):
                    exchange.supersede()
                    return
                raise
            except TOO_LONG as error:
                log.warning("an exchange waited for too long", worker=str(request.worker_id), error=repr(error))
                exchange.supersede(self._retry_in())
                return
            if self._stop_check.is_due(exchange):
                await self._stop_check.run(exchange)
            reply = exchange.reply
            reply.drain = worker.state == WorkerState.DRAINING and not request.draining
            now = self._clock.monotonic()
            if request.unstarted and self._gates:
                await self._paused_runs.recall(exchange, now)
            said = reply.runs or reply.stop or reply.drain or reply.give_back
            if exchange.must_write or said or now >= exchange.deadline:
                return
            until = exchange.deadline
            if request.unstarted:
                until = min(until, recall_unstarted(exchange, self._long_polls, now))
                if reply.recall:
                    return
            await self._wait(exchange, now, until)
            handed = await self.hand_offs.result(exchange)
            if not handed:
                if waiter.superseded:
                    reply.superseded = True
                    return
                if not exchange.woken and until == exchange.deadline:
                    return
            exchange.start_next_round()

    def _retry_in(self) -> float:
        """After how many seconds a worker comes back whose exchange waited for too long: within a beat, and not all at
        the same moment."""
        return round(_RETRY_LEAST + self._random() * (self._timing.beat - _RETRY_LEAST), 3)

    async def _may_claim(self, exchange: Exchange) -> bool:
        """Whether there may be runs to claim. An idle worker asks every beat: one read of the index, for all that ask
        at that moment, is enough to answer no, and nothing is written."""
        demand = exchange.waiter.demand
        if demand.free <= 0:
            return False
        if exchange.woken:
            return True
        lanes = self._gates.unblocked(demand.lanes, self._lanes)
        if not lanes:
            return False
        return await self._ready_check.any_of(lanes)

    async def _ready_lanes(self, lanes: Collection[int]) -> Collection[int]:
        async with RescuePatience(self._clock).connection(self._store.hot) as connection:
            return await self._claimer.ready_lanes(connection, lanes)

    async def _wait(self, exchange: Exchange, now: float, until: float) -> None:
        """Wait until the exchange is woken, at most until then."""
        if exchange.before_wait is not None:
            exchange.before_wait()
        self.hand_offs.add(exchange)
        try:
            exchange.woken = await self._long_polls.wait(exchange.waiter, until - now)
        finally:
            self.hand_offs.remove(exchange)
            exchange.waited = True
            exchange.seconds_waited += self._clock.monotonic() - now

    async def _record_progress(
        self, tenant: TenantId, request: ExchangeRequest, patience: RescuePatience
    ) -> list[UUID]:
        """Write the progress at once, even if the rest of the exchange fails. Return the runs that are not the
        worker's any more. If another transaction holds one of the runs, the next progress report does it."""
        try:
            async with patience.connection(self._store.hot) as connection:
                return await workers.note_progress(
                    connection, tenant, request.worker_id, request.progress, patience.for_locks(_FOR_PROGRESS)
                )
        except TOO_LONG as error:
            log.warning("progress not recorded", worker=str(request.worker_id), error=repr(error))
            return []

    async def poll(self) -> int:
        """Look for ready runs on behalf of every waiting exchange, in case a hint was lost. Return how many lanes had
        some."""
        self._registry.evict_silent()
        await self._lanes.refresh()
        await self._starts.try_again()
        self._update_demands()
        lanes = self._gates.unblocked(self._long_polls.wanted_lanes(), self._lanes)
        if not lanes:
            return 0
        async with self._store.hot.acquire() as connection:
            ready = await self._claimer.ready_lanes(connection, lanes)
        self._long_polls.offer(dict.fromkeys(ready, 1))
        return len(ready)

    def _on_ready(self, ready: Mapping[int, int]) -> None:
        """A hint: these lanes got so many runs."""
        if any(self._lanes.peek(lane_id) is None for lane_id in ready):  # another process has created the lane
            task = asyncio.create_task(self._load_lanes_and_offer(ready))
            self._lane_loads.add(task)
            task.add_done_callback(self._lane_loads.discard)
            return
        if self._lanes.revision != self._lanes_revision:
            self._lanes_revision = self._lanes.revision
            self._update_demands()
        self._offer(ready)

    def _offer(self, ready: Mapping[int, int]) -> None:
        """Wake workers for these runs, unless a gate keeps them back."""
        if self._gates:
            ready = {lane_id: ready[lane_id] for lane_id in self._gates.unblocked(ready, self._lanes)}
        self._long_polls.offer(ready)

    async def _load_lanes_and_offer(self, ready: Mapping[int, int]) -> None:
        try:
            await self._lanes.refresh()
        except AWAY as error:
            log.warning("new lanes could not be read; the next poll reads them", error=repr(error))
            return
        self._update_demands()
        self._offer(ready)

    def _update_demands(self) -> None:
        """Let every exchange see the lanes that were added."""
        for exchange in self._active:
            exchange.update_demand(self._lanes)

    async def close(self) -> None:
        """Cancel what runs in the background."""
        await self.waker.close()
        await self._transaction.close()
        for task in self._lane_loads:
            task.cancel()
        await asyncio.gather(*self._lane_loads, return_exceptions=True)


def _counted(reply: ExchangeReply) -> ExchangeReply:
    if reply.superseded:
        because = "load" if reply.retry_in is not None else "held_rows" if reply.acked else "newer"
        metrics.superseded.labels(because).inc()
    return reply
