"""Claims through gates. The gates of the lanes that have runs are locked first, in key order. So their counts are exact
until the commit, and of several claims through one gate each sees what the others took.

A transaction that has recorded outcomes waits for no gate: a claim can sleep on a row of another transaction, and one
that holds a gate must not wait for one that waits for a gate. It takes gates that are free and far from closed, which
saves a transaction. Otherwise the claim is a transaction of its own.

A run is claimed through a gate only for a slot that is free: a run that waits in a worker would keep others from
starting, or start with others in a burst. So while runs wait behind an open gate, the worker gets nothing in advance
from other queues either: it would never have a free slot. Gates that are far from closed are an exception: with room
for twice as many runs, a worker gets runs in advance, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from math import inf
from uuid import UUID

from mainspring.domain.quotas import pace
from mainspring.domain.rates import Bucket
from mainspring.kernel.clock import Clock
from mainspring.operations.claim.claimer import Claimer, GateCapacities
from mainspring.operations.limits.gate_registry import GateRegistry
from mainspring.operations.limits.gate_views import bucket_of
from mainspring.store import gates
from mainspring.store.claimed_runs import ClaimedRun
from mainspring.store.gates import Gate, LockedGate, Passed
from mainspring.store.lanes import Lane
from mainspring.store.pool import Connection
from mainspring.wire.exchange import RunOrder

_Gates = tuple[Gate | None, Gate | None]

_NONE: _Gates = (None, None)
_UNLIMITED = 2**31 - 1
START_WITHIN = 0.25  # seconds from the token to the start
_WIDE = 10  # times the slots of a worker
_LEAST_WAIT = 0.005  # seconds between polls for a token: at high rates a claim takes several


class GatedClaim:
    """The claims of one exchange. `claim` may be called several times. `leave` writes what has passed."""

    def __init__(self, claimer: Claimer, registry: GateRegistry, clock: Clock, slots: int) -> None:
        self._claimer = claimer
        self._registry = registry
        self._clock = clock
        self._entered = 0.0
        self._rated: set[UUID] = set()
        self._slots = slots
        self._openings: dict[int, int] = {}
        self._locked: dict[int, LockedGate] = {}
        self._marks: dict[int, int] = {}
        self._room: dict[int, int] = {}
        self.passed: Counter[int] = Counter()
        self._gates_of: dict[int, _Gates] = {}
        self._through: set[int] = set()
        self._waiting: set[int] = set()
        self._free_now = 0
        self._now: datetime | None = None
        self.waits: dict[int, float] = {}

    def is_wide(self, lanes: Iterable[Lane]) -> bool:
        """Whether all gates of these lanes are far from what this worker can take."""
        gates_of = [gate for lane in lanes for gate in self._registry.of(lane) if gate is not None]
        return all(_is_wide(gate, self._slots) for gate in gates_of)

    async def enter(
        self, connection: Connection, worker_id: UUID, lanes: Sequence[Lane], *, waits: bool = True
    ) -> bool:
        """Lock the gates of the lanes that have runs. The lanes of all claims must be among these. What the registry
        says is read now: it may change while the claim is under way. Return whether claims may follow: not if another
        transaction has one of the gates, and this one `waits` for none, because it has recorded outcomes."""
        registry = self._registry
        self._gates_of = {lane.lane_id: registry.of(lane) for lane in registry.unpaused(lanes)}
        limited = [
            lane for lane in lanes if any(self._gates_of.get(lane.lane_id, _NONE)) and not registry.blocked(lane)
        ]
        if not limited:
            return True
        found = await gates.look(connection, worker_id, self._claimer.heads(limited))
        wanted = {gate.gate_id for gate in self._gates_before(found.ready)}
        if not wanted:
            return True
        self._waiting = set(found.ready)
        self._free_now = max(0, self._slots - found.held)
        if not self._free_now and not all(_is_wide(gate, self._slots) for gate in self._gates_before(found.ready)):
            return True
        self._openings = {gate_id: registry.openings(gate_id) for gate_id in wanted}
        if waits:
            await self._lock(connection, sorted(wanted))
        elif not await self._try(connection, sorted(wanted)):
            return False
        for gate in self._locked.values():
            self._room[gate.gate_id] = self._room_of(gate)
        self._through = self._waiting
        return True

    async def _lock(self, connection: Connection, wanted: Sequence[int]) -> None:
        self._locked = {gate.gate_id: gate for gate in await gates.lock_for_claim(connection, wanted)}
        self._marks = await gates.take_marks(connection, list(self._locked))
        self._entered = self._clock.monotonic()
        self._now = await gates.clock(connection)

    async def _try(self, connection: Connection, wanted: Sequence[int]) -> bool:
        self._entered = self._clock.monotonic()
        locked = await gates.try_for_claim(connection, wanted)
        if locked is None:
            return False
        self._locked = {gate.gate_id: gate for gate in locked}
        self._marks = {gate.gate_id: gate.marks for gate in locked}
        self._now = locked[0].now
        return True

    def _gates_before(self, lane_ids: Iterable[int]) -> list[Gate]:
        return [gate for lane_id in lane_ids for gate in self._gates_of[lane_id] if gate is not None]

    def _room_of(self, gate: LockedGate) -> int:
        """How many runs may pass a gate now."""
        if gate.paused or not gate.counted:
            return 0
        room = _UNLIMITED
        if gate.concurrency is not None:
            room = gate.concurrency - gate.in_use + self._marks.get(gate.gate_id, 0)
        if (bucket := bucket_of(gate)) is not None and self._now is not None:
            room = min(room, bucket.tokens(self._now))
        return max(0, room)

    async def claim(
        self, connection: Connection, lanes: Sequence[Lane], limit: int, worker_id: UUID, seq: int
    ) -> list[RunOrder]:
        """Claim runs as `Claimer.claim` does, but no more through each gate than it lets pass."""
        claimer, open_lanes = self._claimer, [lane for lane in lanes if lane.lane_id in self._gates_of]
        free = [lane for lane in open_lanes if not any(self._gates_of[lane.lane_id])]
        through = {lane.lane_id for lane in open_lanes if lane.lane_id in self._through and self._lets_pass(lane)}
        in_advance = bool(through) and self._has_room_for_others(through, limit)
        now = limit if in_advance else min(limit, self._free_now)
        if not through or not now:
            most = now if self._is_awaited() else limit
            orders = await claimer.claim(connection, free, most, worker_id, seq)
            self._free_now = max(0, self._free_now - len(orders))
            return orders
        unlimited = {lane.lane_id for lane in free}
        both = [lane for lane in open_lanes if lane.lane_id in through or lane.lane_id in unlimited]
        orders = await claimer.claim(connection, both, now, worker_id, seq, self)
        self._free_now = max(0, self._free_now - len(orders))
        if len(orders) == now and limit > now and not self._is_awaited():  # the rest would wait in the worker
            orders += await claimer.claim(connection, free, limit - now, worker_id, seq)
        return orders

    def _lets_pass(self, lane: Lane) -> bool:
        return all(self._room.get(gate.gate_id, 0) > 0 for gate in self._gates_of[lane.lane_id] if gate is not None)

    def _has_room_for_others(self, lane_ids: Collection[int], limit: int) -> bool:
        """Whether so many runs may wait in the worker: others find as much room again, and as many tokens."""
        return all(self._room.get(gate.gate_id, 0) >= 2 * limit for gate in self._gates_before(lane_ids))

    def _is_awaited(self) -> bool:
        """Whether runs behind gates wait for a slot of this worker. Without a free slot the gates were not locked: a
        gate that is not known to be closed counts as open."""
        return any(
            all(self._room.get(gate.gate_id, 1) > 0 for gate in self._gates_of[lane_id] if gate is not None)
            for lane_id in self._waiting
        )

    def capacities(self, lanes: Sequence[Lane]) -> GateCapacities:
        """How many runs may pass from each of these lanes, for the statement of a claim."""
        capacities = GateCapacities()
        for lane in lanes:
            of_queue, of_tenant = (self._place(gate) for gate in self._gates_of[lane.lane_id])
            owned = [place[0] for place in (of_queue, of_tenant) if place is not None and self._is_owned(place[0])]
            capacities.add(of_queue, of_tenant, owned)
        return capacities

    def _place(self, gate: Gate | None) -> tuple[int, int] | None:
        return None if gate is None else (gate.gate_id, self._room[gate.gate_id])

    def _is_owned(self, gate_id: int) -> bool:
        """A run owns the gates that limit how many run at once. A rate only counts its start."""
        return self._locked[gate_id].concurrency is not None

    def took(self, rows: Sequence[ClaimedRun]) -> None:
        """Count rows that were claimed."""
        rated = set()
        for lane_id, number in Counter(row.lane_id for row in rows).items():
            for gate in self._gates_of[lane_id]:
                if gate is not None:
                    if bucket_of(self._locked[gate.gate_id]) is not None:
                        rated.add(lane_id)
                    self.passed[gate.gate_id] += number
                    self._room[gate.gate_id] -= number
        if rated:
            self._rated.update(row.run_id for row in rows if row.lane_id in rated)

    def limit_starts(self, orders: Sequence[RunOrder], arrived: float) -> None:
        """Let no run start long after its token was taken, together with others: its worker, or the network, may stand
        still meanwhile. The worker counts from the moment at which it sent the exchange, which was before it came."""
        for order in orders:
            if order.run_id in self._rated:
                order.start_within = round(self._entered - arrived + START_WITHIN, 3)

    async def leave(self, connection: Connection) -> None:
        """Write what has passed, in the transaction of the claim."""
        changes = []
        for gate_id, gate in self._locked.items():
            passed, marks = self.passed[gate_id], self._marks.get(gate_id, 0)
            bucket, tat = bucket_of(gate), None
            if bucket is not None and self._now is not None and (passed or bucket.ahead(self._now)):
                tat = bucket.take(passed, self._now)
            owned = passed if gate.concurrency is not None else 0
            if owned != marks or tat is not None:
                changes.append(Passed(gate_id, owned - marks, tat))
        if changes:
            await gates.pass_through(connection, changes)

    def note(self) -> None:
        """After the commit: remember which gates are closed, and for how long workers wait for a token (`waits`)."""
        for gate_id, gate in self._locked.items():
            if self._room[gate_id] > 0:
                continue
            wait: float = inf
            if (bucket := bucket_of(gate)) is not None and self._now is not None:
                passed = self.passed[gate_id]
                after = Bucket(bucket.every, bucket.burst, bucket.take(passed, self._now) if passed else bucket.tat)
                if not after.tokens(self._now):
                    wait = max(_LEAST_WAIT, after.wait(self._now))
                    self.waits[gate_id] = wait
            self._registry.close(gate_id, self._openings[gate_id], None if wait == inf else wait)


def _is_wide(gate: Gate, slots: int) -> bool:
    """Whether it may have room for runs that wait in a worker with so many slots. Then it is worth to lock it."""
    found = pace(gate.rate, gate.burst, gate.runs_per_minute)
    most, burst = gate.most_at_once, None if found is None else found[1]
    return all(limit is None or limit >= _WIDE * slots for limit in (most, burst))
