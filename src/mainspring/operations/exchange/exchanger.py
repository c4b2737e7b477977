"""The exchange: heartbeat, report, claim and cancel in one call. Safe to repeat, also at another server.

Every exchange carries a sequence number that rises. The transaction locks the worker's row and takes the number, so
an old copy of an exchange that turns up late changes nothing. A claim is written in `runs` with the incarnation and
the number, never in a server's memory: a worker that missed an answer says so (`recover`) and lists what it holds, and
whatever the rows give it besides is handed out again. Outcomes match run, fence and incarnation; one that was recorded
before is acknowledged again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from uuid import UUID

from mainspring.domain.errors import Conflict
from mainspring.kernel import metrics
from mainspring.kernel.clock import Clock
from mainspring.kernel.config import Timing
from mainspring.kernel.ids import TenantId
from mainspring.kernel.logs import get_logger
from mainspring.operations.access.caller import Caller
from mainspring.operations.exchange.beats import Beats
from mainspring.operations.exchange.claim import Claimer
from mainspring.operations.exchange.long_poll import LongPolls, Waiter
from mainspring.operations.exchange.queue_shares import claim_in_shares, rooms_asked_for
from mainspring.operations.exchange.worker_registry import STALE, STOP_LOOK, KnownWorker, WorkerRegistry
from mainspring.operations.lifecycle.decide import Random
from mainspring.operations.lifecycle.report import settle
from mainspring.operations.signals import Signals
from mainspring.operations.submit.signature_registry import SignatureRegistry
from mainspring.store import runs, workers
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import AWAY, Connection, Store
from mainspring.store.workers import WorkerState
from mainspring.wire.exchange import ExchangeReply, ExchangeRequest, Outcome, RunOrder

log = get_logger("exchange")

_LIVE = int(WorkerState.LIVE)
_NEVER = float("inf")
_RECALL_PAUSE = 0.1


class Exchanger:
    def __init__(
        self,
        store: Store,
        lanes: LaneRegistry,
        signals: Signals,
        long_polls: LongPolls,
        beats: Beats,
        clock: Clock,
        timing: Timing,
        random: Random,
        signatures: SignatureRegistry,
    ) -> None:
        self._store = store
        self._lanes = lanes
        self._signals = signals
        self._long_polls = long_polls
        self._beats = beats
        self._clock = clock
        self._timing = timing
        self._random = random
        self._claimer = Claimer(lanes, clock)
        self._registry = WorkerRegistry(store, signatures, beats, clock)
        self._seen_revision = -1
        self._looking: set[asyncio.Task[None]] = set()
        signals.on_ready(self._ready)
        signals.on_stop(long_polls.stop)

    def _ready(self, created: Mapping[int, int]) -> None:
        if any(self._lanes.peek(lane_id) is None for lane_id in created):
            task = asyncio.create_task(self._look_at_new_lanes(created))  # another process made them
            self._looking.add(task)
            task.add_done_callback(self._looking.discard)
            return
        if self._lanes.revision != self._seen_revision:
            self._seen_revision = self._lanes.revision
            self._long_polls.see_lanes()
        self._long_polls.ready(created)

    async def _look_at_new_lanes(self, created: Mapping[int, int]) -> None:
        try:
            await self._lanes.refresh()
        except AWAY as error:
            log.warning("new lanes not read yet; the poll will", error=repr(error))
            return
        self._long_polls.see_lanes()
        self._long_polls.ready(created)

    async def close(self) -> None:
        """End what looks at the database without being waited for."""
        for task in self._looking:
            task.cancel()
        await asyncio.gather(*self._looking, return_exceptions=True)

    async def exchange(self, caller: Caller, request: ExchangeRequest) -> ExchangeReply:
        tenant = caller.tenant
        arrived = self._clock.monotonic()
        known = await self._registry.know(tenant, request)
        # Before it takes its spot: from then on a newer exchange may end it, and it must not be looking elsewhere.
        stale = await self._note_progress(tenant, request) if request.progress else []
        waiter = self._long_polls.arrive(request.worker_id, tenant)
        metrics.waiting.set(len(self._long_polls))
        try:
            beat = asyncio.ensure_future(self._beats.record(request.worker_id))
            try:
                reply = await self._serve(tenant, request, known, waiter)
                reply.fenced += stale
            finally:
                await beat  # the answer is the acknowledgement of the beat, so it waits for the beat's commit
            return reply
        finally:
            self._long_polls.leave(waiter)
            metrics.exchange_seconds.observe(self._clock.monotonic() - arrived - waiter.waited_for)

    async def _serve(
        self, tenant: TenantId, request: ExchangeRequest, known: KnownWorker, waiter: Waiter
    ) -> ExchangeReply:
        deadline = self._clock.monotonic() + min(request.wait_ms / 1000, self._timing.beat)
        must_write = bool(request.outcomes) or request.recover or request.stopped or request.draining
        again = woken = waiting = False
        while True:
            waiter.event.clear()
            self._see_lanes(tenant, known, waiter, request)
            waiter.see_lanes = partial(self._see_lanes, tenant, known, waiter, request)
            reply = ExchangeReply(seq=request.seq)
            if must_write or (waiter.free > 0 and (woken or await self._anything_ready(waiter))):
                try:
                    await self._transact(tenant, request, known, reply, waiter, first=not again, woken=woken)
                except Conflict as error:
                    # Its worker has reported meanwhile: here, or at another server while this one was parked.
                    if error.code == STALE and (waiting or waiter.superseded):
                        return ExchangeReply(seq=request.seq, superseded=True)
                    raise
                again = True
            if waiter.stop or self._clock.monotonic() - known.stop_looked_at >= STOP_LOOK:
                await self._look_for_stops(tenant, request.worker_id, known, waiter, reply)
            reply.drain = known.state == WorkerState.DRAINING and not request.draining
            now = self._clock.monotonic()
            if must_write or reply.runs or reply.stop or reply.drain or now >= deadline:
                return reply
            until = deadline
            if waiter.unstarted:
                until = min(deadline, self._consider_recall(known, waiter, reply, now))
                if reply.recall:
                    return reply
            woken, waiting = await self._park(waiter, now, until), True
            if waiter.superseded:
                reply.superseded = True
                return reply
            if not woken and until == deadline:
                return reply

    async def _park(self, waiter: Waiter, now: float, until: float) -> bool:
        """Wait until something is to be done, or until it is time; says whether somebody woke us."""
        self._long_polls.start_waiting(waiter)
        try:
            await asyncio.wait_for(waiter.event.wait(), until - now)
        except TimeoutError:
            return waiter.event.is_set()
        finally:
            self._long_polls.stop_waiting(waiter)
            waiter.waited_for += self._clock.monotonic() - now
        return True

    def _consider_recall(self, known: KnownWorker, waiter: Waiter, reply: ExchangeReply, now: float) -> float:
        """Ask for unstarted runs back when somebody parked here could start them. A worker that knows better keeps
        them, and is asked again a moment later: gives when."""
        again = known.recalled_at + _RECALL_PAUSE
        if now < again:
            return again if self._long_polls.anybody_idle(waiter) else _NEVER
        reply.recall = self._long_polls.promise(waiter, now, now + _RECALL_PAUSE)
        if not reply.recall:
            return _NEVER
        known.recalled_at = now
        log.debug("recalling runs for idle workers", worker=str(waiter.worker_id), runs=reply.recall)
        return now

    async def _anything_ready(self, waiter: Waiter) -> bool:
        """An idle worker asks every beat: one look at the index is enough for a no, and writes nothing."""
        if not waiter.lanes:
            return False
        async with self._store.hot.acquire() as connection:
            return bool(await self._claimer.ready_lanes(connection, waiter.lanes))

    async def _note_progress(self, tenant: TenantId, request: ExchangeRequest) -> list[UUID]:
        """Keep it at once, whatever becomes of the rest of the exchange; gives the runs that have changed hands."""
        async with self._store.hot.acquire() as connection:
            return await workers.note_progress(connection, tenant, request.worker_id, request.progress)

    async def poll(self) -> int:
        """Back up the hints: look once for everybody parked here; returns how many lanes had something."""
        self._registry.forget_the_silent()
        await self._lanes.refresh()
        self._long_polls.see_lanes()
        lanes = self._long_polls.lanes()
        if not lanes:
            return 0
        async with self._store.hot.acquire() as connection:
            ready = await self._claimer.ready_lanes(connection, lanes)
        self._long_polls.ready(dict.fromkeys(ready, 1))
        return len(ready)

    @property
    def workers(self) -> int:
        """How many workers are known here."""
        return len(self._registry)

    async def _transact(
        self,
        tenant: TenantId,
        request: ExchangeRequest,
        known: KnownWorker,
        reply: ExchangeReply,
        waiter: Waiter,
        *,
        first: bool,
        woken: bool,
    ) -> None:
        requeued: list[tuple[int, float]] = []
        async with self._store.hot.acquire() as connection, connection.transaction():
            state = await workers.advance(connection, tenant, request.worker_id, request.seq, again=not first)
            if state is None:
                await self._registry.refuse(connection, tenant, request)
            else:
                known.state = state
            if first and request.outcomes:
                settled = await settle(connection, request.worker_id, request.outcomes, self._random)
                reply.acked = len(request.outcomes)
                reply.fenced = settled.fenced
                requeued = settled.requeued
                metrics.fenced.inc(len(settled.fenced))
                _count_outcomes(request.outcomes)
            if first and request.recover:
                reply.runs = await self._redeliver(connection, request)
            free = request.free - len(reply.runs)
            if free > 0 and not request.draining and state == _LIVE:
                # Woken together with others, it takes its part. One that has just come takes all it has room for.
                granted = waiter.take_grant()
                most = min(free, granted) if woken and granted else free
                if request.shares or request.room:
                    reply.runs += await claim_in_shares(self._claimer, connection, known.lanes, free, most, request)
                else:
                    reply.runs += await self._claimer.claim(
                        connection, known.lanes, most, request.worker_id, request.seq
                    )
            if first and (request.stopped or request.draining):
                state = WorkerState.STOPPED if request.stopped else WorkerState.DRAINING
                await workers.set_state(connection, request.worker_id, state)
        for lane_id, delay in requeued:
            self._signals.ready_later(lane_id, delay)
        if request.stopped:
            self._registry.forget(request.worker_id)

    async def _redeliver(self, connection: Connection, request: ExchangeRequest) -> list[RunOrder]:
        held = [item.run_id for item in request.inventory] + [item.run_id for item in request.outcomes]
        rows = await runs.redeliver(connection, request.worker_id, request.seq, held, 10_000)
        if rows:
            metrics.redelivered.inc(len(rows))
            log.info("handing out claims again", worker=str(request.worker_id), runs=len(rows))
        return [await self._claimer.order(row) for row in rows]

    def _see_lanes(self, tenant: TenantId, known: KnownWorker, waiter: Waiter, request: ExchangeRequest) -> None:
        if known.revision != self._lanes.revision:
            known.lanes = self._lanes.eligible(tenant, known.queues, known.tasks, known.labels)
            known.lane_ids = frozenset(lane.lane_id for lane in known.lanes)
            known.revision = self._lanes.revision
        waiter.free = 0 if request.draining or known.state != _LIVE else request.free
        waiter.unstarted = request.unstarted
        waiter.all_lanes = known.lane_ids
        if request.shares or request.room:
            waiter.lanes = waiter.rooms = rooms_asked_for(known.lanes, request)
        else:
            waiter.lanes = known.lane_ids

    async def _look_for_stops(
        self, tenant: TenantId, worker_id: UUID, known: KnownWorker, waiter: Waiter, reply: ExchangeReply
    ) -> None:
        hinted, waiter.stop = waiter.stop, False
        known.stop_looked_at = self._clock.monotonic()
        async with self._store.hot.acquire() as connection:
            wanted = await runs.to_stop(connection, worker_id)
            # The same hint says that the worker is to drain. Without a hint its row was looked at on arrival.
            row = await workers.look(connection, tenant, worker_id) if hinted else None
        if row is not None:
            known.state = row["state"]
        # Said once, and again every beat until the run has ended: the answer may have been lost.
        now = known.stop_looked_at
        reply.stop = [run_id for run_id in wanted if now - known.told.get(run_id, 0.0) >= self._timing.beat]
        known.told = {run_id: known.told.get(run_id, 0.0) for run_id in wanted}
        known.told.update(dict.fromkeys(reply.stop, now))


def _count_outcomes(outcomes: Sequence[Outcome]) -> None:
    for status, count in Counter(outcome.status for outcome in outcomes).items():
        metrics.outcomes.labels(status).inc(count)
