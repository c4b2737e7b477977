"""Hand-off: the statement that creates a run stores it as claimed by an exchange that waits at this server.

A run that finds no such exchange is queued. So is one that would overtake another run which the worker could take. The
guards are those of a claim (store/sql/hand_off.sql). The statement waits for no worker's row.

From the choice of an exchange until the statement has ended, the exchange is not answered, because it may own the runs
by then. Whatever wakes it meanwhile, it learns first what became of the hand-off. If that is not known, or takes too
long, it fails. Its worker recovers, and the rows decide.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from uuid import UUID

import asyncpg

from mainspring.domain.errors import Unavailable
from mainspring.kernel import metrics
from mainspring.kernel.ids import TenantId
from mainspring.operations.claim.claimer import MAX_LANES_PER_CLAIM, Claimer
from mainspring.operations.claim.fair_turns import rank
from mainspring.operations.claim.long_poll import LongPolls, divide
from mainspring.operations.exchange.exchange import Exchange
from mainspring.operations.limits.gate_registry import GateRegistry
from mainspring.store.claimed_runs import ClaimedRun
from mainspring.store.database import Pooling
from mainspring.store.exchange_groups import LaneHead
from mainspring.store.hand_off import HandOffTaker, hand_off_runs
from mainspring.store.lanes import Lane, LaneRegistry
from mainspring.store.pool import AWAY, Connection, Store
from mainspring.store.runs import NewRuns

MOST_RUNS = 64  # more than that are queued, and divided among more workers
_SAME_TIME = datetime(2000, 1, 1, tzinfo=UTC)  # the runs of a statement are equally old


class HandOff:
    """Fresh runs, and the exchanges to which they are handed. `places`: the exchange of each run; None if it is queued
    in any case."""

    def __init__(
        self, exchanges: Sequence[Exchange], places: Sequence[int | None], lanes: Sequence[LaneHead], revision: int
    ) -> None:
        self._exchanges = exchanges
        self._places = places
        self._lanes = lanes
        self._revision = revision

    async def store(
        self, connection: Connection, tenant: TenantId, new: NewRuns, created_by: UUID | None
    ) -> Counter[int]:
        """Store the runs, and tell the exchanges. Return how many runs of each lane were handed off."""
        counts = Counter(self._places)
        for place, exchange in enumerate(self._exchanges):
            exchange.waiter.begin_hand_off(counts[place])
        takers = [
            HandOffTaker(exchange.request.worker_id, exchange.tenant, exchange.request.seq, exchange.numbered)
            for exchange in self._exchanges
        ]
        try:
            found = await hand_off_runs(
                connection, tenant, new, self._places, takers, self._lanes, self._revision, created_by
            )
        except (ValueError, OverflowError, asyncpg.PostgresError, *AWAY) as error:
            # The driver raises a ValueError, which may also be in AWAY, for a value that it cannot send.
            if isinstance(error, AWAY) and not isinstance(error, ValueError):
                self._fail()
            else:
                self._settle({})  # nothing was written
            raise
        except BaseException:  # such as a request that has gone
            self._fail()
            raise
        self._settle(found)
        handed = Counter(row.lane_id for rows in found.values() for row in rows)
        metrics.handed_off.inc(handed.total())
        return handed

    def _settle(self, found: Mapping[UUID, list[ClaimedRun]]) -> None:
        for exchange in self._exchanges:
            exchange.waiter.end_hand_off(found.get(exchange.request.worker_id, []))

    def _fail(self) -> None:
        """Whether the runs are stored is not known."""
        for exchange in self._exchanges:
            exchange.waiter.doubt_hand_off()


class HandOffs:
    """The exchanges that wait at this server, by worker."""

    def __init__(
        self, store: Store, long_polls: LongPolls, claimer: Claimer, gates: GateRegistry, lanes: LaneRegistry
    ) -> None:
        self._long_polls = long_polls
        self._claimer = claimer
        self._gates = gates
        self._lanes = lanes
        # A PgBouncer in transaction mode keeps no plans, and to plan this statement takes long.
        self._enabled = store.database.pooling is not Pooling.TRANSACTION
        self._waiting: dict[UUID, Exchange] = {}

    def add(self, exchange: Exchange) -> None:
        """This exchange starts to wait."""
        request = exchange.request
        if request.free > 0 and exchange.worker.tells_starts and not (request.shares or request.room):
            self._waiting[request.worker_id] = exchange

    def remove(self, exchange: Exchange) -> None:
        if self._waiting.get(exchange.request.worker_id) is exchange:
            del self._waiting[exchange.request.worker_id]

    async def result(self, exchange: Exchange) -> list[ClaimedRun]:
        """What was handed to this exchange while it waited. Raises Unavailable if that is not known in time."""
        under_way = exchange.waiter.hand_off
        if under_way is None:
            return []
        exchange.patience.renew()
        try:
            async with asyncio.timeout(exchange.patience.left()):
                found = await asyncio.shield(under_way)
        except TimeoutError:
            found = None
        exchange.waiter.hand_off = None
        if found is None:
            raise Unavailable("runs may have been assigned to this worker", hint="recover")
        return found

    def begin(self, lane_ids: Sequence[int]) -> HandOff | None:
        """Choose exchanges for fresh runs of these lanes. None: no exchange can take one. The caller stores what is
        returned before it waits for anything else."""
        if not self._enabled or not self._waiting or len(lane_ids) > MOST_RUNS:
            return None
        exchanges = self._takers(lane_ids)
        if not exchanges:
            return None
        lanes = self._gates.unpaused(exchanges[0].worker.lanes)
        priorities = {lane.lane_id: lane.priority for lane in lanes}
        taken = sorted(
            (place for place, lane_id in enumerate(lane_ids) if lane_id in priorities),
            key=lambda place: rank(priorities[lane_ids[place]], _SAME_TIME),
        )
        rooms = [exchange.waiter.available for exchange in exchanges]
        if not taken:
            return None
        if sum(rooms) < len(taken) and len({lane_ids[place] for place in taken}) > 1:
            return None  # which of them come first is for a claim to decide
        parts = divide(len(taken), rooms)
        places: list[int | None] = [None] * len(lane_ids)
        first = 0
        for number, part in enumerate(parts):
            for place in taken[first : first + part]:
                places[place] = number
            first += part
        chosen = [exchange for exchange, part in zip(exchanges, parts, strict=True) if part > 0]
        return HandOff(chosen, places, self._claimer.heads(lanes), self._gates.revision)

    def _takers(self, lane_ids: Sequence[int]) -> list[Exchange]:
        """Exchanges that can take runs of the first of these lanes for which there are some. They take from the same
        lanes, so that one look finds out whether a run waits for any of them."""
        for lane_id in dict.fromkeys(lane_ids):
            lane = self._lanes.peek(lane_id)
            if lane is None:
                continue
            found: list[Exchange] = []
            for waiter in self._long_polls.idle(lane_id, len(lane_ids)):
                exchange = self._waiting.get(waiter.worker_id)
                if exchange is None or exchange.waiter is not waiter or not waiter.can_take_hand_off:
                    continue
                worker = exchange.worker
                if found and worker.lane_ids != found[0].worker.lane_ids:
                    continue
                if found or self._may_take(exchange, lane):
                    found.append(exchange)
            if found:
                return found
        return []

    def _may_take(self, exchange: Exchange, lane: Lane) -> bool:
        """Whether no gate stands between this exchange and the lane."""
        worker = exchange.worker
        if len(worker.lanes) > MAX_LANES_PER_CLAIM or self._gates.limited(worker.lanes):
            return False
        return not self._gates.is_paused(lane)
