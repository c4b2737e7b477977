"""The gates that this server knows. A claim compares their revision with the database's, so it never acts on old ones.

Which gates are closed at the moment is remembered too, so that waiting workers do not try again and again. That is a
hint: it ends by itself, and when a gate is given back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from mainspring.domain.quotas import Quotas
from mainspring.kernel.clock import Clock
from mainspring.kernel.ids import EVERY_TENANT, TenantId
from mainspring.store import gates, quotas
from mainspring.store.gates import Gate
from mainspring.store.lanes import Lane, LaneRegistry
from mainspring.store.pool import Connection

_FULL_FOR = 1.0  # seconds for which a full gate is believed to be full, in case the hint that it is not was lost


class GateRegistry:
    def __init__(self, clock: Clock, history_days: int) -> None:
        """`history_days`: for how long the servers keep the history of a tenant without a quota."""
        self._clock = clock
        self.history_days = history_days
        self._by_key: dict[tuple[TenantId, str | None], Gate] = {}
        self._by_id: dict[int, Gate] = {}
        self._closed_until: dict[int, float] = {}
        self._openings: dict[int, int] = {}
        self.quotas: Mapping[TenantId, Quotas] = {}
        self.revision = 0

    async def load(self, connection: Connection) -> None:
        """Read all gates. The revision is read first: a change in between is noticed by the next claim."""
        revision = await gates.revision(connection)
        found = await gates.all_gates(connection)
        allowed = await quotas.all_quotas(connection)
        if revision < self.revision:  # another task was faster
            return
        self._by_key = {(gate.tenant_id, gate.queue): gate for gate in found if gate.has_settings}
        self._by_id = {gate.gate_id: gate for gate in self._by_key.values()}
        self.quotas = allowed
        self._closed_until.clear()
        self.revision = revision

    def log_bytes_per_day(self, tenant: TenantId) -> int | None:
        """The quota of the tenant, as far as this server knows."""
        allowed = self.quotas.get(tenant)
        return None if allowed is None else allowed.log_bytes_per_day

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def get(self, gate_id: int) -> Gate | None:
        return self._by_id.get(gate_id)

    def of(self, lane: Lane) -> tuple[Gate | None, Gate | None]:
        """The gates of the queue and of the tenant that limit claims from this lane."""
        by_key = self._by_key
        return _limiting(by_key.get((lane.tenant_id, lane.queue))), _limiting(by_key.get((lane.tenant_id, None)))

    def pause_of(self, tenant: TenantId, queue: str) -> Gate | None:
        """The gate that keeps the runs of this queue from being claimed."""
        for key in ((tenant, queue), (tenant, None), (EVERY_TENANT, None)):
            gate = self._by_key.get(key)
            if gate is not None and gate.paused_at is not None:
                return gate
        return None

    def is_paused(self, lane: Lane) -> bool:
        return self.pause_of(lane.tenant_id, lane.queue) is not None

    def may_start_late(self, lane: Lane) -> bool:
        """Whether a run of this lane may start long after it was claimed."""
        return not self.is_paused(lane) and all(gate is None or not gate.has_rate for gate in self.of(lane))

    def unpaused(self, lanes: Sequence[Lane]) -> Sequence[Lane]:
        """The lanes from which may be claimed."""
        if not self._by_key:
            return lanes
        return [lane for lane in lanes if not self.is_paused(lane)]

    def limited(self, lanes: Iterable[Lane]) -> bool:
        """Whether one of these lanes lies behind a limit."""
        return bool(self._by_key) and any(gate for lane in lanes for gate in self.of(lane))

    def blocked(self, lane: Lane) -> bool:
        """Whether nothing can be claimed from this lane now, as far as is known."""
        if self.is_paused(lane):
            return True
        now = self._clock.monotonic()
        return any(gate is not None and self._closed_until.get(gate.gate_id, 0.0) > now for gate in self.of(lane))

    def unblocked(self, lane_ids: Collection[int], lanes: LaneRegistry) -> Collection[int]:
        """The lanes that are not blocked."""
        if not self._by_key:
            return lane_ids
        return [lane_id for lane_id in lane_ids if (lane := lanes.peek(lane_id)) is None or not self.blocked(lane)]

    def openings(self, gate_id: int) -> int:
        """How often the gate was opened, to be passed to `close`."""
        return self._openings.get(gate_id, 0)

    def close(self, gate_id: int, openings: int, seconds: float | None = None) -> None:
        """Nothing passes this gate for so many seconds, unless it was opened meanwhile."""
        if self.openings(gate_id) == openings:
            self._closed_until[gate_id] = self._clock.monotonic() + (_FULL_FOR if seconds is None else seconds)

    def open(self, gate_id: int) -> None:
        """The gate was given back, or has a token."""
        if gate_id in self._by_id:
            self._openings[gate_id] = self._openings.get(gate_id, 0) + 1
            self._closed_until.pop(gate_id, None)

    def lanes_behind(self, gate_ids: Collection[int], lanes: Iterable[Lane]) -> list[int]:
        """The lanes that lie behind one of the gates."""
        return [
            lane.lane_id
            for lane in lanes
            if any(gate is not None and gate.gate_id in gate_ids for gate in self.of(lane))
        ]

    def with_depth(self) -> list[Gate]:
        """The gates that limit how many runs wait."""
        return [gate for gate in self._by_id.values() if gate.most_waiting is not None]


def _limiting(gate: Gate | None) -> Gate | None:
    return None if gate is None or not gate.limits_claims else gate
