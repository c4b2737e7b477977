"""The transaction of an exchange: it takes the sequence number, settles outcomes, and claims runs.

The worker's row is locked first. Everything after that is written for the newest exchange of the worker only.

Where another transaction holds a row, this one waits for half a second. Then it is repeated without the outcomes whose
rows are held. It does not acknowledge these, and the worker sends all of them again: what was recorded before is not
recorded twice.

Most exchanges are plain, and written in one statement together with others (groups.py). What is left over goes on here.

Where some lanes of the worker lie behind limits of their queue or tenant, the claim is a transaction of its own, after
the outcomes are committed, unless the limits are far from closed and no other claim holds them
(operations/limits/gated_claim.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import asyncpg

from mainspring.domain.errors import Conflict, Unavailable
from mainspring.kernel import metrics
from mainspring.kernel.clock import Clock
from mainspring.kernel.logs import get_logger
from mainspring.operations.claim.claimer import Claimer
from mainspring.operations.exchange.exchange import Exchange
from mainspring.operations.exchange.groups import ExchangeGroups
from mainspring.operations.exchange.patience import TOO_LONG
from mainspring.operations.exchange.queue_shares import Claims, claim_by_shares
from mainspring.operations.exchange.worker_registry import STALE, WorkerRegistry
from mainspring.operations.lifecycle.decide import Random
from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.lifecycle.report import settle
from mainspring.operations.limits.effects import LimitEffects
from mainspring.operations.limits.gate_registry import GateRegistry
from mainspring.operations.limits.gate_waker import GateWaker
from mainspring.operations.limits.gated_claim import GatedClaim
from mainspring.operations.secrets.handing_out import SecretHandout, naming_secrets
from mainspring.operations.signals import Signals
from mainspring.store import runs, workers
from mainspring.store.claimed_runs import ClaimedRun
from mainspring.store.lanes import Lane, LaneRegistry
from mainspring.store.pool import Connection, Store
from mainspring.store.workers import WorkerState
from mainspring.wire.exchange import ExchangeReply, Outcome, RunOrder

log = get_logger("exchange")

_LIVE = int(WorkerState.LIVE)
_MAX_REDELIVERED = 10_000
_FOR_A_ROW = 0.5  # seconds for which a transaction waits for a row that another one holds
_ONCE_MORE = 0.1  # when it has waited once
_FOR_A_GATE = 0.3  # seconds for which a claim waits for the gates that other claims hold


class ExchangeTransaction:
    def __init__(
        self,
        store: Store,
        registry: WorkerRegistry,
        claimer: Claimer,
        lanes: LaneRegistry,
        gates: GateRegistry,
        waker: GateWaker,
        signals: Signals,
        clock: Clock,
        random: Random,
        secrets: SecretHandout,
    ) -> None:
        self._clock = clock
        self._store = store
        self._lanes = lanes
        self._gates = gates
        self._waker = waker
        self._registry = registry
        self._claimer = claimer
        self._signals = signals
        self._random = random
        self._secrets = secrets
        self._groups = ExchangeGroups(store, claimer, gates, clock)

    async def close(self) -> None:
        await self._groups.close()

    async def run(self, exchange: Exchange) -> None:
        """Write what the worker reports and claim runs for it. Raises LockNotAvailableError if another transaction
        holds the worker's row, or Busy. PostgreSQL ends one of two transactions that wait for each other; nothing of it
        was written, and it is repeated."""
        if await self._run_with_others(exchange):
            return None
        seconds, skip_held = _FOR_A_ROW, False
        self._claimer.take_unreadable(exchange.request.worker_id)  # of an exchange that was not committed
        for last in (False, False, True):
            try:
                return await self._run(exchange, seconds, skip_held=skip_held)
            except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError) as error:
                waited = isinstance(error, asyncpg.LockNotAvailableError)
                if last or (waited and skip_held):
                    raise
                log.info("an exchange is repeated", worker=str(exchange.request.worker_id), error=repr(error))
                exchange.reply = ExchangeReply(seq=exchange.request.seq)
                if waited:
                    seconds, skip_held = _ONCE_MORE, True
        return None

    async def _run_with_others(self, exchange: Exchange) -> bool:
        """Write the exchange in a group. Return whether that was all. Otherwise it goes on by itself; if the group has
        taken its number, it goes on with that."""
        passed = await self._groups.join(exchange)
        if passed is None:
            return False
        request, reply = exchange.request, exchange.reply
        exchange.numbered, exchange.worker.state = True, passed.state
        if not passed.complete:
            return False
        if request.outcomes and not exchange.committed:
            reply.acked = len(request.outcomes)
            _count_outcomes(request.outcomes)
        exchange.committed = True
        if passed.claimed:
            reply.runs = await self._claimer.hand_out(passed.claimed, request.worker_id)
            await self._complete(exchange)
        return passed.gates_known or not request.free

    async def hand_out(self, exchange: Exchange, handed: list[ClaimedRun]) -> None:
        """Put runs into the reply that were stored as claimed by this exchange, under its number."""
        exchange.numbered = exchange.committed = True
        taken = {row.lane_id for row in handed}
        lanes = [lane for lane in exchange.worker.lanes if lane.lane_id in taken or not self._gates.is_paused(lane)]
        exchange.reply.runs = await self._claimer.hand_over(handed, lanes, exchange.request.worker_id)
        await self._complete(exchange)

    async def _complete(self, exchange: Exchange) -> None:
        """Add secrets to the runs, and end those that cannot be handed out. The claim is committed. So if this takes
        too long, the worker gets no answer instead of an empty one, and recovers."""
        failed = self._claimer.take_unreadable(exchange.request.worker_id)
        if not failed and not naming_secrets(exchange.reply.runs):
            return
        try:
            async with exchange.patience.connection(self._store.hot) as connection:
                failed += await self._add_secrets(connection, exchange)
                if failed:
                    self._signals.gates_freed.publish(await self._fail(connection, exchange, failed))
        except TOO_LONG as error:
            raise Unavailable("the claim could not be completed in time", hint="recover") from error

    async def _run(self, exchange: Exchange, seconds: float, *, skip_held: bool = False) -> None:
        async with exchange.patience.connection(self._store.hot) as connection:
            apart, freed = True, Counter[int]()
            writes = exchange.must_write or not self._gates.limited(exchange.worker.lanes)
            if writes:
                apart, freed = await self._write(connection, exchange, seconds, skip_held=skip_held)
            if apart:
                freed -= await self._claim_apart(connection, exchange, written=writes)
            failed = self._claimer.take_unreadable(exchange.request.worker_id)
            failed += await self._add_secrets(connection, exchange)
            if failed:
                freed += await self._fail(connection, exchange, failed)
        self._signals.gates_freed.publish(freed)

    async def _write(
        self, connection: Connection, exchange: Exchange, seconds: float, *, skip_held: bool = False
    ) -> tuple[bool, Counter[int]]:
        """Outcomes and recovery belong to the first transaction of an exchange. One that was woken later only claims.
        Return whether the claim is left to a transaction of its own, and the gates that were given back."""
        request = exchange.request
        first = not exchange.committed
        effects: Effects | None = None
        async with connection.transaction():
            state = await self._advance(connection, exchange, exchange.patience.for_locks(seconds))
            if first and request.outcomes:
                outcomes = request.outcomes
                if skip_held:
                    outcomes = await self._not_held(connection, exchange)
                effects = await self._settle(connection, exchange, outcomes)
            if first and request.recover:
                await self._redeliver(connection, exchange)
            claims = state == _LIVE and not request.draining
            limited = claims and self._gates.limited(exchange.worker.lanes)
            # What has locked lines of limits, or joins, commits first: a claim can wait for a report of another
            # transaction.
            apart = claims and effects is not None and effects.contended
            gated: GatedClaim | None = None
            if limited and not apart:
                gated = None if skip_held else await self._claim_gated(connection, exchange)
                apart = gated is None
            elif claims and not apart:
                lanes = self._gates.unpaused(exchange.worker.lanes)
                await self._claim(connection, exchange, self._claimer, lanes)
            await self._assume_started(connection, exchange, exchange.reply.runs)
            stopped = request.stopped and not exchange.reply.superseded
            if first and (stopped or request.draining):
                ending = WorkerState.STOPPED if stopped else WorkerState.DRAINING
                await workers.set_state(connection, request.worker_id, ending)
        exchange.numbered = exchange.committed = True
        freed = Counter[int]() if effects is None else self._published(effects)
        if gated is not None:
            freed -= self._passed(gated)
        if stopped:
            self._registry.evict(request.worker_id)
        return apart, freed

    async def _claim_gated(self, connection: Connection, exchange: Exchange) -> GatedClaim | None:
        """Claim through gates in the transaction of the outcomes, which waits for none of them. None, and nothing is
        claimed, if one is narrow or in use."""
        worker, redelivered = exchange.worker, exchange.reply.runs
        gated = GatedClaim(self._claimer, self._gates, self._clock, worker.slots)
        if not gated.is_wide(worker.lanes):
            return None
        if not await gated.enter(connection, exchange.request.worker_id, worker.lanes, waits=False):
            return None
        exchange.reply.runs = []
        await self._claim(connection, exchange, gated, worker.lanes, len(redelivered))
        await gated.leave(connection)
        gated.limit_starts(exchange.reply.runs, exchange.arrived)
        exchange.reply.runs = redelivered + exchange.reply.runs
        return gated

    def _passed(self, gated: GatedClaim) -> Counter[int]:
        """After the commit: how many runs passed each gate."""
        gated.note()
        self._waker.tokens_at(gated.waits)
        return gated.passed

    async def _add_secrets(self, connection: Connection, exchange: Exchange) -> list[Outcome]:
        """Add the secrets to the runs of the reply that name some. A run that does not get them is not handed out:
        return the failures."""
        reply = exchange.reply
        naming = naming_secrets(reply.runs)
        if not naming:
            return []
        failed = await self._secrets.add(connection, naming, takes_secrets=exchange.worker.takes_secrets)
        if failed:
            without = {outcome.run_id for outcome in failed}
            reply.runs = [order for order in reply.runs if order.run_id not in without]
            reply.give_back = [run_id for run_id in reply.give_back if run_id not in without]
        return failed

    async def _fail(self, connection: Connection, exchange: Exchange, unreadable: Sequence[Outcome]) -> Counter[int]:
        """End runs that were claimed and cannot be handed out. If this process dies before, they are claims whose reply
        was lost, and come back here. Return the gates that were given back."""
        async with connection.transaction():
            effects = await settle(connection, exchange.request.worker_id, unreadable, self._random)
        return self._published(effects)

    def _published(self, effects: Effects) -> Counter[int]:
        """Publish the effects after the commit. Return the gates that were given back: what the claim takes of them is
        not published."""
        freed = effects.of(LimitEffects).take_gates() if LimitEffects in effects.parts else {}
        effects.publish(self._signals)
        for gate_id in freed:
            self._gates.open(gate_id)
        return Counter(freed)

    async def _claim_apart(self, connection: Connection, exchange: Exchange, *, written: bool) -> Counter[int]:
        """Claim in a transaction of its own, through the gates of the lanes that have some. Without the locks it needs,
        it claims nothing. `written`: the outcomes are committed, and the reply must acknowledge them. Return how many
        runs passed each gate."""
        request, lanes = exchange.request, exchange.worker.lanes
        redelivered = exchange.reply.runs
        gated_claim = GatedClaim(self._claimer, self._gates, self._clock, exchange.worker.slots)
        try:
            async with connection.transaction():
                if await self._advance(connection, exchange, exchange.patience.for_locks(_FOR_A_GATE)) != _LIVE:
                    return Counter()
                exchange.reply.runs = []
                await gated_claim.enter(connection, request.worker_id, lanes)
                await self._claim(connection, exchange, gated_claim, lanes, len(redelivered))
                await gated_claim.leave(connection)
                gated_claim.limit_starts(exchange.reply.runs, exchange.arrived)
                await self._assume_started(connection, exchange, exchange.reply.runs)
        except (*TOO_LONG, asyncpg.DeadlockDetectedError, Conflict) as error:
            if isinstance(error, Conflict) and not written:
                raise
            log.info("nothing claimed", worker=str(request.worker_id), error=repr(error))
            exchange.reply.runs = redelivered
            return Counter()
        exchange.reply.runs = redelivered + exchange.reply.runs
        exchange.numbered = exchange.committed = True
        return self._passed(gated_claim)

    async def _assume_started(self, connection: Connection, exchange: Exchange, orders: Sequence[RunOrder]) -> None:
        """An old worker does not tell which runs have started."""
        if orders and not exchange.worker.tells_starts:
            claimed = [order.run_id for order in orders]
            await workers.assume_started(connection, exchange.request.worker_id, claimed)

    async def _advance(self, connection: Connection, exchange: Exchange, patience: str) -> int:
        """Lock the worker's row, take the sequence number and return the worker's state. Raise if a newer exchange was
        here, or if the incarnation has ended. From here on the gates are known as they are."""
        tenant, request = exchange.tenant, exchange.request
        if exchange.waiter.superseded:  # while it waited for a connection
            raise Conflict("a newer exchange of this worker is here", code=STALE, field="seq")
        advanced = await workers.advance(
            connection, tenant, request.worker_id, request.seq, again=exchange.numbered, patience=patience
        )
        if advanced is None:
            await self._registry.refuse(connection, tenant, request, waited=exchange.waited)
        exchange.worker.state, revision = advanced
        if revision > self._gates.revision:
            await self._gates.load(connection)
        return exchange.worker.state

    async def _not_held(self, connection: Connection, exchange: Exchange) -> list[Outcome]:
        """The outcomes of runs that no other transaction holds. These are locked."""
        outcomes = exchange.request.outcomes
        free = await runs.free_to_report(connection, [outcome.run_id for outcome in outcomes])
        chosen = [outcome for outcome in outcomes if outcome.run_id in free]
        if len(chosen) < len(outcomes):
            exchange.reply.superseded = True
            log.warning(
                "outcomes not recorded yet: another transaction holds their runs",
                worker=str(exchange.request.worker_id), held=len(outcomes) - len(chosen), recorded=len(chosen),
            )  # fmt: skip
        return chosen

    async def _settle(self, connection: Connection, exchange: Exchange, outcomes: Sequence[Outcome]) -> Effects:
        request, reply = exchange.request, exchange.reply
        effects = await settle(connection, request.worker_id, outcomes, self._random)
        reply.acked = len(outcomes)
        reply.fenced = effects.fenced
        metrics.fenced.inc(len(effects.fenced))
        _count_outcomes(outcomes)
        return effects

    async def _redeliver(self, connection: Connection, exchange: Exchange) -> None:
        """Hand out again what the worker was given and does not hold: the reply that carried it was lost."""
        request = exchange.request
        held = [item.run_id for item in request.inventory] + [item.run_id for item in request.outcomes]
        rows = await runs.redeliver(connection, request.worker_id, request.seq, held, _MAX_REDELIVERED)
        if rows:
            metrics.redelivered.inc(len(rows))
            log.info("handing out claims again", worker=str(request.worker_id), runs=len(rows))
        exchange.reply.runs = await self._claimer.orders(rows, request.worker_id)
        # Those of paused queues, and those whose token is spent, must come back. The lost reply may still arrive, so
        # only the worker can give them back.
        known = [(row.run_id, self._lanes.peek(row.lane_id)) for row in rows]
        exchange.reply.give_back = [
            run_id for run_id, lane in known if lane is not None and not self._gates.may_start_late(lane)
        ]

    async def _claim(
        self, connection: Connection, exchange: Exchange, claims: Claims, lanes: Sequence[Lane], taken: int = 0
    ) -> None:
        """Claim runs for the free slots of the worker. `taken` are handed out again beside the reply's runs."""
        request, reply = exchange.request, exchange.reply
        free = request.free - len(reply.runs) - taken
        if free <= 0:
            return
        limit = exchange.take_part(free)
        if request.shares or request.room:
            reply.runs += await claim_by_shares(claims, connection, lanes, free, limit, request)
        else:
            reply.runs += await claims.claim(connection, lanes, limit, request.worker_id, request.seq)


def _count_outcomes(outcomes: Sequence[Outcome]) -> None:
    for status, count in Counter(outcome.status for outcome in outcomes).items():
        metrics.outcomes.labels(status).inc(count)
