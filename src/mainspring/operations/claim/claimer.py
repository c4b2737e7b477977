"""Claim: assign queued runs to a worker. A lower bound per lane skips dead index entries."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol
from uuid import UUID

from mainspring.domain.errors import Unreadable
from mainspring.domain.fairness import Party
from mainspring.kernel import metrics
from mainspring.kernel.clock import Clock, DatabaseClock
from mainspring.kernel.logs import about_run, get_logger
from mainspring.operations.claim.fair_turns import (
    MAX_LANES_PER_CHECK,
    FairPool,
    FairPools,
    count_bands,
    in_fair_order,
    rank,
)
from mainspring.store import runs
from mainspring.store.claimed_runs import ClaimedRun, order_of
from mainspring.store.lanes import Lane, LaneRegistry
from mainspring.store.pool import Connection
from mainspring.wire.exchange import Outcome, RunOrder

log = get_logger("claimer")

MAX_LANES_PER_CLAIM = 64
_BOUND_LAG = timedelta(seconds=5)
_FULL_SCAN_INTERVAL = 30.0
_BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)
_MAX_CLAIM_BYTES = 16 * 1024**2  # approximately: payloads may be 256 KiB each, and a worker may ask for thousands
_ASSUMED_BYTES = 64 * 1024  # the estimated size of a run in a lane from which nothing was claimed yet
_ALONE: Mapping[Party, int] = {0: 0}  # the virtual time where nobody takes turns


class LaneBounds:
    """For each lane, a time before which no run waits any more.

    The bound lags 5 s behind the newest claim. Every 30 s a scan ignores it, and finds runs that became ready late.
    While another session keeps an old snapshot open, a million dead index entries at the head of a lane cost 148 ms per
    claim without the bound, and 2 ms with it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bounds: dict[int, datetime] = {}
        self._full_scan_at: dict[int, float] = {}

    def bound(self, lane_id: int) -> datetime:
        now = self._clock.monotonic()
        if now - self._full_scan_at.get(lane_id, float("-inf")) >= _FULL_SCAN_INTERVAL:
            self._full_scan_at[lane_id] = now
            self._bounds.pop(lane_id, None)
        return self._bounds.get(lane_id, _BEGINNING)

    def raise_to(self, lane_id: int, oldest_ready: datetime) -> None:
        """The oldest run just claimed was ready at `oldest_ready`, so the lane has none that is older."""
        bound = oldest_ready - _BOUND_LAG
        if bound > self._bounds.get(lane_id, _BEGINNING):
            self._bounds[lane_id] = bound


class LaneSizes:
    """The average size of a run of each lane in bytes, from the last claim. It keeps the size of a reply bounded."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}

    def estimate_fit(self, lanes: Sequence[Lane], budget: int) -> int:
        """Estimate how many runs of these lanes fit into `budget` bytes."""
        return budget // max(self._sizes.get(lane.lane_id, _ASSUMED_BYTES) for lane in lanes)

    def record(self, rows: Sequence[ClaimedRun]) -> int:
        """Remember the sizes of claimed rows, and return their total."""
        sums: dict[int, tuple[int, int]] = {}
        for row in rows:
            size, count = sums.get(row.lane_id, (0, 0))
            sums[row.lane_id] = size + len(row.payload_text or "") + len(row.spec_text or ""), count + 1
        for lane_id, (size, count) in sums.items():
            self._sizes[lane_id] = max(1, size // count)
        return sum(size for size, _ in sums.values())


class GateCapacities:
    """What the gates let pass from each lane of a claim, as columns: the gates of queue and tenant, how many may pass
    each, and the gates that a run owns."""

    def __init__(self) -> None:
        self.queue_gates: list[int | None] = []
        self.queue_capacities: list[int | None] = []
        self.tenant_gates: list[int | None] = []
        self.tenant_capacities: list[int | None] = []
        self.owned: list[str | None] = []

    def add(self, of_queue: tuple[int, int] | None, of_tenant: tuple[int, int] | None, owned: Sequence[int]) -> None:
        queue_gate, queue_capacity = of_queue or (None, None)
        tenant_gate, tenant_capacity = of_tenant or (None, None)
        self.queue_gates.append(queue_gate)
        self.queue_capacities.append(queue_capacity)
        self.tenant_gates.append(tenant_gate)
        self.tenant_capacities.append(tenant_capacity)
        self.owned.append("{" + ",".join(map(str, owned)) + "}" if owned else None)

    @property
    def columns(self) -> runs.GateColumns:
        return (self.queue_gates, self.queue_capacities, self.tenant_gates, self.tenant_capacities, self.owned)


class Gates(Protocol):
    """The gates of a claim, locked by its transaction."""

    def capacities(self, lanes: Sequence[Lane]) -> GateCapacities: ...

    def took(self, rows: Sequence[ClaimedRun]) -> None: ...


class Claimer:
    def __init__(self, lanes: LaneRegistry, clock: Clock, database_clock: DatabaseClock) -> None:
        self._lanes = lanes
        self._database_clock = database_clock
        self._bounds = LaneBounds(clock)
        self._sizes = LaneSizes()
        self._pools = FairPools()
        self._queue_numbers: dict[str, Party] = {}
        self._unreadable: dict[UUID, list[Outcome]] = {}

    async def claim(
        self,
        connection: Connection,
        eligible: Sequence[Lane],
        limit: int,
        worker_id: UUID,
        seq: int,
        gates: Gates | None = None,
    ) -> list[RunOrder]:
        """Claim up to `limit` runs, and about 16 MiB, of the eligible lanes. Return them in the order in which they
        should start. The lanes of each tenant must stand together. `gates`: some of the lanes lie behind these."""
        if not eligible or limit <= 0:
            return []
        if eligible[0].tenant_id != eligible[-1].tenant_id or len(eligible) > MAX_LANES_PER_CLAIM:
            return await self._claim_in_turns(connection, eligible, limit, worker_id, seq, gates)
        if len({lane.queue for lane in eligible}) > 1:
            return await self._claim_by_queues(connection, eligible, limit, worker_id, seq, gates)
        rows = await self._take(connection, eligible, limit, worker_id, seq, gates=gates)
        if not rows:
            return []
        self._note_heads(rows)
        if len(eligible) > 1:
            priority = {lane.lane_id: lane.priority for lane in eligible}
            rows.sort(key=lambda row: rank(priority[row.lane_id], row.ready_at))
        return await self.orders(rows, worker_id)

    async def _take(
        self,
        connection: Connection,
        lanes: Sequence[Lane],
        limit: int,
        worker_id: UUID,
        seq: int,
        parties: Mapping[int, Party] | None = None,
        starts: dict[Party, int] | None = None,
        gates: Gates | None = None,
    ) -> list[ClaimedRun]:
        """Claim from at most 64 lanes, usually in one step. More steps follow where more runs fit than estimated: a run
        of a lane that was never claimed from counts as large, even if the lane is empty. With `starts`, their
        virtual times, the `parties` of the lanes take turns."""
        heads = self.heads(lanes)
        turns = [0 if parties is None or starts is None else parties[lane.lane_id] for lane in lanes]
        rows: list[ClaimedRun] = []
        budget = _MAX_CLAIM_BYTES
        while (step := min(limit - len(rows), self._sizes.estimate_fit(lanes, budget))) > 0:
            if gates is not None:
                columns = gates.capacities(lanes).columns
                some = await runs.claim_through_gates(
                    connection, heads, turns, starts or _ALONE, step, worker_id, seq, columns
                )
                gates.took(some)
            elif starts is None:
                some = await runs.claim(connection, heads, step, worker_id, seq)
            else:
                some = await runs.claim_fairly(connection, heads, turns, starts, step, worker_id, seq)
            if starts is not None and parties is not None:
                for row in some:
                    starts[parties[row.lane_id]] += 1
            budget -= self._sizes.record(some)
            rows += some
            if len(some) < step:
                break
        return rows

    async def _claim_in_turns(
        self,
        connection: Connection,
        eligible: Sequence[Lane],
        limit: int,
        worker_id: UUID,
        seq: int,
        gates: Gates | None,
    ) -> list[RunOrder]:
        """Claim from the lanes of several tenants, or from more than 64 lanes, in turns. A query finds out first which
        lanes have runs: a tenant without any is idle, and empty lanes are not among the 64."""
        pool = self._pools.pool_for(eligible)
        parties = self._parties(eligible)
        waiting: list[Lane] = []
        for _ in range(0, len(eligible), MAX_LANES_PER_CHECK):
            checked = pool.lanes_to_check(eligible)
            ready = set(await self.ready_lanes(connection, [lane.lane_id for lane in checked]))
            waiting = [lane for lane in checked if lane.lane_id in ready]
            starts = pool.shares.starts(
                {parties[lane.lane_id] for lane in checked}, {parties[lane.lane_id] for lane in waiting}
            )
            if waiting:
                break
        if not waiting:
            return []
        chosen = pool.lanes_to_claim(waiting, MAX_LANES_PER_CLAIM)
        contested = len(starts) > 1
        rows = await self._take(
            connection, chosen, limit, worker_id, seq, parties, dict(starts) if contested else None, gates
        )
        return await self._in_turn(rows, chosen, parties, starts, pool, worker_id)

    async def _claim_by_queues(
        self,
        connection: Connection,
        eligible: Sequence[Lane],
        limit: int,
        worker_id: UUID,
        seq: int,
        gates: Gates | None,
    ) -> list[RunOrder]:
        """Claim from several queues of one tenant in turns: the backlog of one does not hold up the others. No query
        comes first: the claim itself shows which queues were idle."""
        pool = self._pools.pool_for(eligible)
        parties = self._parties(eligible)
        starts = pool.shares.starts(parties.values(), set(parties.values()))
        rows = await self._take(connection, eligible, limit, worker_id, seq, parties, dict(starts), gates)
        return await self._in_turn(rows, eligible, parties, starts, pool, worker_id)

    def _parties(self, eligible: Sequence[Lane]) -> dict[int, Party]:
        """Who takes turns, by lane: the tenants, or the queues of one tenant."""
        if eligible[0].tenant_id != eligible[-1].tenant_id:
            return {lane.lane_id: lane.tenant_id for lane in eligible}
        numbers = self._queue_numbers
        return {lane.lane_id: numbers.setdefault(lane.queue, len(numbers)) for lane in eligible}

    async def _in_turn(
        self,
        rows: Sequence[ClaimedRun],
        chosen: Sequence[Lane],
        parties: Mapping[int, Party],
        starts: Mapping[Party, int],
        pool: FairPool,
        worker_id: UUID,
    ) -> list[RunOrder]:
        """Count what was claimed, and return it in the order of the turns."""
        if not rows:
            return []
        lanes: dict[int, Lane] = {lane.lane_id: lane for lane in chosen}
        served = {parties[lane.lane_id]: starts[parties[lane.lane_id]] for lane in chosen}
        pool.shares.taken(served, *count_bands(rows, lanes, parties))
        self._note_heads(rows)
        return await self.orders(in_fair_order(rows, lanes, parties, starts), worker_id)

    def heads(self, lanes: Sequence[Lane]) -> list[tuple[int, int, datetime]]:
        """Lanes as a claim takes them: lane, priority, lower bound."""
        return [(lane.lane_id, lane.priority, self._bounds.bound(lane.lane_id)) for lane in lanes]

    def most_at_once(self, lanes: Sequence[Lane]) -> int:
        """About how many runs of these lanes fit into one reply; at least one."""
        return max(1, self._sizes.estimate_fit(lanes, _MAX_CLAIM_BYTES))

    async def hand_out(self, rows: list[ClaimedRun], worker_id: UUID) -> list[RunOrder]:
        """Note what was claimed of lanes of one queue, and return it in the order in which it should start."""
        self._sizes.record(rows)
        self._note_heads(rows)
        if len(rows) > 1:
            ranks = [(*rank(await self._priority(row.lane_id), row.ready_at), place) for place, row in enumerate(rows)]
            rows = [rows[place] for *_, place in sorted(ranks)]
        return await self.orders(rows, worker_id)

    async def hand_over(self, rows: list[ClaimedRun], eligible: Sequence[Lane], worker_id: UUID) -> list[RunOrder]:
        """Note and order runs that were handed off to a worker that takes from these lanes. No other run waited there,
        so no turn was passed over. The runs count as turns."""
        if eligible[0].tenant_id == eligible[-1].tenant_id and len({lane.queue for lane in eligible}) == 1:
            return await self.hand_out(rows, worker_id)
        self._sizes.record(rows)
        pool, parties = self._pools.pool_for(eligible), self._parties(eligible)
        starts = pool.shares.starts(parties.values(), {parties[row.lane_id] for row in rows})
        served = [lane for lane in eligible if parties[lane.lane_id] in starts]
        return await self._in_turn(rows, served, parties, starts, pool, worker_id)

    async def _priority(self, lane_id: int) -> int:
        return (self._lanes.peek(lane_id) or await self._lanes.get(lane_id)).priority

    async def ready_lanes(self, connection: Connection, lane_ids: Collection[int]) -> list[int]:
        """Return which of these lanes have runs to claim now."""
        return await runs.ready_lanes(connection, [(lane_id, self._bounds.bound(lane_id)) for lane_id in lane_ids])

    async def orders(self, rows: Iterable[ClaimedRun], worker_id: UUID) -> list[RunOrder]:
        """What the worker needs to run these. A run that cannot be read is not handed out: `take_unreadable`."""
        found: list[RunOrder] = []
        for row in rows:
            lane = self._lanes.peek(row.lane_id) or await self._lanes.get(row.lane_id)
            try:
                found.append(order_of(row, lane))
            except Unreadable as problem:
                run = about_run(lane.tenant_id, row.job_id, row.run_id, row.attempt)
                log.error("a run cannot be handed out, and fails", **run, error=str(problem))
                self._unreadable.setdefault(worker_id, []).append(_failure(row, problem))
        return found

    def take_unreadable(self, worker_id: UUID) -> list[Outcome]:
        """The failures of runs that were claimed for this worker and cannot be read. They are for the caller to
        report once the claim is committed."""
        return self._unreadable.pop(worker_id, [])

    def _note_heads(self, rows: Sequence[ClaimedRun]) -> None:
        heads: dict[int, datetime] = {}
        for row in rows:
            lane_id, ready_at = row.lane_id, row.ready_at
            if lane_id not in heads or ready_at < heads[lane_id]:
                heads[lane_id] = ready_at
        for lane_id, ready_at in heads.items():
            self._bounds.raise_to(lane_id, ready_at)
        metrics.claimed.inc(len(rows))
        metrics.start_latency.observe(max(0.0, self._database_clock.timestamp() - min(heads.values()).timestamp()))


def _failure(row: ClaimedRun, problem: Unreadable) -> Outcome:
    return Outcome(row.run_id, row.fence, "FAILED", error=str(problem), retry=False, unstarted=True)
