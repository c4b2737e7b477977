"""Claim: give queued runs to a worker. Lower bounds per lane keep dead index entries out of the way."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from math import ceil
from uuid import UUID

import msgspec

from mainspring.domain.job import DEFAULT_TIMEOUT, spec_from_text
from mainspring.kernel import metrics
from mainspring.kernel.clock import Clock
from mainspring.kernel.ids import LaneId, TenantId
from mainspring.operations.exchange.fair_turns import LANES_LOOKED_AT, FairPools, count_bands, in_fair_order, rank
from mainspring.store import runs
from mainspring.store.lanes import Lane, LaneRegistry
from mainspring.store.pool import Connection
from mainspring.store.runs import ClaimedRun
from mainspring.wire.exchange import RunOrder

LANES_AT_A_TIME = 64
_TRAIL = timedelta(seconds=5)
_FULL_LOOK = 30.0
_BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)
_MOST_BYTES = 16 * 1024**2  # of one claim, about: payloads may be 256 KiB each, and a worker may ask for thousands
_HEAVY = 64 * 1024  # what a run of a lane is thought to weigh until some were seen
_LEAST_TIMEOUT = 0.001  # for a claim that is handed out again when its run_timeout has passed
_NO_PAYLOAD = msgspec.Raw(b"null")


class LaneBounds:
    """For each lane, a moment before which nothing waits any more.

    It trails the newest claim by 5 s, and every 30 s a look without it makes up for anything that came late: with an
    open snapshot elsewhere, a million dead entries at the head of a lane cost 148 ms per claim without the bound, and
    2 ms with it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bounds: dict[int, datetime] = {}
        self._full_look_at: dict[int, float] = {}

    def bound(self, lane_id: int) -> datetime:
        now = self._clock.monotonic()
        if now - self._full_look_at.get(lane_id, float("-inf")) >= _FULL_LOOK:
            self._full_look_at[lane_id] = now
            self._bounds.pop(lane_id, None)
        return self._bounds.get(lane_id, _BEGINNING)

    def claimed(self, lane_id: int, oldest_ready: datetime) -> None:
        """The head of the lane stood at `oldest_ready`: everything older than that is gone."""
        bound = oldest_ready - _TRAIL
        if bound > self._bounds.get(lane_id, _BEGINNING):
            self._bounds[lane_id] = bound


class LaneWeights:
    """What the runs of each lane weigh, in bytes, by its last claim; so that one answer stays within bounds."""

    def __init__(self) -> None:
        self._weights: dict[int, int] = {}

    def most(self, lanes: Sequence[Lane], room: int) -> int:
        """How many runs of these lanes are thought to fit into `room` bytes."""
        return room // max(self._weights.get(lane.lane_id, _HEAVY) for lane in lanes)

    def weigh(self, claimed: Sequence[ClaimedRun]) -> int:
        """Take note of what was claimed; gives what it weighs."""
        sums: dict[int, tuple[int, int]] = {}
        for run in claimed:
            weight, count = sums.get(run.lane_id, (0, 0))
            sums[run.lane_id] = weight + len(run.payload or "") + len(run.spec or ""), count + 1
        for lane_id, (weight, count) in sums.items():
            self._weights[lane_id] = max(1, weight // count)
        return sum(weight for weight, _ in sums.values())


class Claimer:
    def __init__(self, lanes: LaneRegistry, clock: Clock) -> None:
        self._lanes = lanes
        self._clock = clock
        self._bounds = LaneBounds(clock)
        self._weights = LaneWeights()
        self._pools = FairPools()

    async def claim(
        self, connection: Connection, eligible: Sequence[Lane], limit: int, worker_id: UUID, seq: int
    ) -> list[RunOrder]:
        """Up to `limit` runs of the eligible lanes, and about 16 MiB, in the order in which they should start."""
        if not eligible or limit <= 0:
            return []
        # Those of each tenant stand together.
        if eligible[0].tenant_id != eligible[-1].tenant_id or len(eligible) > LANES_AT_A_TIME:
            return await self._claim_in_turns(connection, eligible, limit, worker_id, seq)
        rows = await self._take(connection, eligible, limit, worker_id, seq)
        if not rows:
            return []
        self._note_heads(rows)
        if len(eligible) > 1:
            priority = {lane.lane_id: lane.priority for lane in eligible}
            rows.sort(key=lambda run: rank(priority[run.lane_id], run.ready_at))
        return [await self.order(row) for row in rows]

    async def _take(
        self,
        connection: Connection,
        lanes: Sequence[Lane],
        limit: int,
        worker_id: UUID,
        seq: int,
        starts: dict[TenantId, int] | None = None,
    ) -> list[ClaimedRun]:
        """In one step as a rule. In several where fewer are thought to fit than do: a lane that was never claimed from
        counts as heavy, also when it is empty and the runs beside it weigh nothing. `starts`: where tenants stand."""
        heads = [(lane.lane_id, lane.priority, self._bounds.bound(lane.lane_id)) for lane in lanes]
        rows: list[ClaimedRun] = []
        room = _MOST_BYTES
        while (step := min(limit - len(rows), self._weights.most(lanes, room))) > 0:
            if starts is None:
                some = await runs.claim(connection, heads, step, worker_id, seq)
            else:
                tenants = [lane.tenant_id for lane in lanes]
                some = await runs.claim_fairly(connection, heads, tenants, starts, step, worker_id, seq)
                owner = {lane.lane_id: lane.tenant_id for lane in lanes}
                for run in some:
                    starts[owner[run.lane_id]] += 1
            room -= self._weights.weigh(some)
            rows += some
            if len(some) < step:
                break
        return rows

    async def _claim_in_turns(
        self, connection: Connection, eligible: Sequence[Lane], limit: int, worker_id: UUID, seq: int
    ) -> list[RunOrder]:
        """The same for lanes of several tenants, who take turns, and for many lanes, which take turns too. A look comes
        first: whoever has nothing waiting is idle, and what is empty need not be among the 64."""
        pool = self._pools.of(eligible)
        waiting: list[Lane] = []
        for _ in range(0, len(eligible), LANES_LOOKED_AT):
            looked_at = pool.to_look_at(eligible)
            ready = set(await self.ready_lanes(connection, [lane.lane_id for lane in looked_at]))
            waiting = [lane for lane in looked_at if lane.lane_id in ready]
            starts = pool.shares.starts({lane.tenant_id for lane in looked_at}, {lane.tenant_id for lane in waiting})
            if waiting:
                break
        if not waiting:
            return []
        chosen = pool.to_take_from(waiting, LANES_AT_A_TIME)
        contested = len(starts) > 1
        rows = await self._take(connection, chosen, limit, worker_id, seq, dict(starts) if contested else None)
        if not rows:
            return []
        lanes: dict[int, Lane] = {lane.lane_id: lane for lane in chosen}
        pool.shares.taken({lane.tenant_id: starts[lane.tenant_id] for lane in chosen}, *count_bands(rows, lanes))
        self._note_heads(rows)
        return [await self.order(row) for row in in_fair_order(rows, lanes, starts)]

    async def ready_lanes(self, connection: Connection, lane_ids: Collection[int]) -> list[int]:
        """Which of these lanes have something to claim at this moment."""
        return await runs.ready_lanes(connection, [(lane_id, self._bounds.bound(lane_id)) for lane_id in lane_ids])

    async def order(self, run: ClaimedRun) -> RunOrder:
        """What the worker needs to know of a claimed run."""
        lane = self._lanes.peek(run.lane_id) or await self._lanes.get(run.lane_id)
        run_id, job_id, payload, spec_text = run.run_id, run.job_id, run.payload, run.spec
        order = RunOrder(
            run_id,
            run.fence,
            lane.task,
            run.attempt,
            str(run_id) if job_id is None else job_id,
            run.scheduled_for,
            _NO_PAYLOAD if payload is None else msgspec.Raw(payload),
            DEFAULT_TIMEOUT,
            run.max_attempts,
            run.name,
            None,
            run.exclusive,
            lane.queue,
        )
        if spec_text is not None:
            spec = spec_from_text(spec_text)
            order.timeout = spec.timeout
            if (left := run.time_left) is not None:
                order.timeout = max(_LEAST_TIMEOUT, min(spec.timeout, ceil(left * 1000) / 1000))
            order.command = spec.command
            order.setup = spec.setup
        return order

    def _note_heads(self, claimed: Sequence[ClaimedRun]) -> None:
        heads: dict[LaneId, datetime] = {}
        for run in claimed:
            lane_id, ready_at = run.lane_id, run.ready_at
            if lane_id not in heads or ready_at < heads[lane_id]:
                heads[lane_id] = ready_at
        for lane_id, ready_at in heads.items():
            self._bounds.claimed(lane_id, ready_at)
        metrics.claimed.inc(len(claimed))
        metrics.start_latency.observe(max(0.0, (self._clock.wall() - min(heads.values())).total_seconds()))
