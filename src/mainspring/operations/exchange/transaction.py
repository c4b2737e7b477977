"""The transaction of an exchange: it takes the sequence number, settles outcomes, and claims runs.

The worker's row is locked first. Everything after that is written for the newest exchange of the worker only.

Where another transaction holds a row, this one waits for half a second. Then it is repeated without the outcomes whose
rows are held. It does not acknowledge these, and the worker sends all of them again: what was recorded before is not
recorded twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import asyncpg

from mainspring.domain.errors import Conflict
from mainspring.kernel import metrics
from mainspring.kernel.logs import get_logger
from mainspring.operations.exchange.claim import Claimer
from mainspring.operations.exchange.exchange import Exchange
from mainspring.operations.exchange.patience import TOO_LONG
from mainspring.operations.exchange.queue_shares import claim_by_shares
from mainspring.operations.exchange.worker_registry import STALE, WorkerRegistry
from mainspring.operations.lifecycle.decide import Random
from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.lifecycle.report import settle
from mainspring.operations.signals import Signals
from mainspring.store import runs, workers
from mainspring.store.pool import Connection, Store
from mainspring.store.workers import WorkerState
from mainspring.wire.exchange import ExchangeReply, Outcome

log = get_logger("exchange")

_LIVE = int(WorkerState.LIVE)
_MAX_REDELIVERED = 10_000
_FOR_A_ROW = 0.5  # seconds for which a transaction waits for a row that another one holds
_ONCE_MORE = 0.1  # when it has waited once


class ExchangeTransaction:
    def __init__(
        self, store: Store, registry: WorkerRegistry, claimer: Claimer, signals: Signals, random: Random
    ) -> None:
        self._store = store
        self._registry = registry
        self._claimer = claimer
        self._signals = signals
        self._random = random

    async def run(self, exchange: Exchange) -> None:
        """Write what the worker reports and claim runs for it. Raises LockNotAvailableError if another transaction
        holds the worker's row, or Busy. PostgreSQL ends one of two transactions that wait for each other; nothing of it
        was written, and it is repeated."""
        seconds, skip_held = _FOR_A_ROW, False
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

    async def _run(self, exchange: Exchange, seconds: float, *, skip_held: bool = False) -> None:
        """Outcomes and recovery belong to the first transaction of an exchange. One that was woken later only
        claims."""
        request = exchange.request
        first = not exchange.committed
        effects: Effects | None = None
        async with exchange.patience.connection(self._store.hot) as connection, connection.transaction():
            state = await self._advance(connection, exchange, exchange.patience.for_locks(seconds))
            if first and request.outcomes:
                outcomes = request.outcomes
                if skip_held:
                    outcomes = await self._not_held(connection, exchange)
                effects = await self._settle(connection, exchange, outcomes)
            if first and request.recover:
                await self._redeliver(connection, exchange)
            claims = state == _LIVE and not request.draining
            # What has locked lines of limits commits first: a claim can wait for somebody else's report.
            claims_later = claims and effects is not None and bool(effects.freed)
            if claims and not claims_later:
                await self._claim(connection, exchange)
            await self._assume_started(connection, exchange)
            stopped = request.stopped and not exchange.reply.superseded
            if first and (stopped or request.draining):
                ending = WorkerState.STOPPED if stopped else WorkerState.DRAINING
                await workers.set_state(connection, request.worker_id, ending)
        exchange.committed = True
        if effects is not None:
            effects.tell(self._signals)
        if stopped:
            self._registry.evict(request.worker_id)
        if claims_later:
            await self._claim_apart(exchange, seconds)

    async def _claim_apart(self, exchange: Exchange, seconds: float) -> None:
        """Claim in a transaction of its own, after what was reported is committed. If that is not possible now, the
        reply acknowledges the outcomes without runs."""
        given = list(exchange.reply.runs)
        try:
            async with exchange.patience.connection(self._store.hot) as connection, connection.transaction():
                if await self._advance(connection, exchange, exchange.patience.for_locks(seconds)) == _LIVE:
                    await self._claim(connection, exchange)
                    await self._assume_started(connection, exchange)
        except (*TOO_LONG, asyncpg.DeadlockDetectedError, Conflict) as error:
            log.info("nothing claimed after the outcomes", worker=str(exchange.request.worker_id), error=repr(error))
            exchange.reply.runs = given

    async def _assume_started(self, connection: Connection, exchange: Exchange) -> None:
        if exchange.reply.runs and not exchange.worker.tells_starts:
            claimed = [order.run_id for order in exchange.reply.runs]
            await workers.assume_started(connection, exchange.request.worker_id, claimed)

    async def _advance(self, connection: Connection, exchange: Exchange, patience: str) -> int:
        """Lock the worker's row, take the sequence number and return the worker's state. Raise if a newer exchange was
        here, or if the incarnation has ended."""
        tenant, request = exchange.tenant, exchange.request
        if exchange.waiter.superseded:  # while it waited for a connection
            raise Conflict("a newer exchange of this worker is here", code=STALE, field="seq")
        state = await workers.advance(
            connection, tenant, request.worker_id, request.seq, again=exchange.committed, patience=patience
        )
        if state is None:
            await self._registry.refuse(connection, tenant, request, waited=exchange.waited)
        exchange.worker.state = state
        return state

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
        exchange.reply.runs = [await self._claimer.order(row) for row in rows]

    async def _claim(self, connection: Connection, exchange: Exchange) -> None:
        """Claim runs for the free slots of the worker."""
        request, reply, lanes = exchange.request, exchange.reply, exchange.worker.lanes
        free = request.free - len(reply.runs)
        if free <= 0:
            return
        # An exchange that was woken together with others claims its part. One that has just arrived fills its slots.
        reserved = exchange.waiter.take_reserved()
        limit = min(free, reserved) if exchange.woken and reserved else free
        if request.shares or request.room:
            reply.runs += await claim_by_shares(self._claimer, connection, lanes, free, limit, request)
        else:
            reply.runs += await self._claimer.claim(connection, lanes, limit, request.worker_id, request.seq)


def _count_outcomes(outcomes: Sequence[Outcome]) -> None:
    for status, count in Counter(outcome.status for outcome in outcomes).items():
        metrics.outcomes.labels(status).inc(count)
