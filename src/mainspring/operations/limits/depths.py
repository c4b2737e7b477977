"""Backpressure: how many runs wait behind the gates that limit it. A submission pays for one lookup.

The counts are from the last second. What this server has accepted since is added, so only what other servers accept and
what schedules fire can go beyond a limit, for a second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from mainspring.domain.errors import QueueFull, Unavailable
from mainspring.domain.job import JobDefinition
from mainspring.domain.quotas import over
from mainspring.domain.schedules.schedule import ScheduleKind
from mainspring.kernel.ids import TenantId
from mainspring.operations.limits.gate_registry import GateRegistry
from mainspring.store import gates
from mainspring.store.gates import Gate
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import Store

_ROOM = 1_000  # how far a count goes beyond its limit


class _Depth(msgspec.Struct):
    """recent: how many were accepted since the last count began, which may have missed them. quota: whether `most` is
    the quota of the tenant."""

    most: int
    waiting: int
    recent: int = 0
    quota: bool = False


class Depths:
    def __init__(self, store: Store, registry: GateRegistry, lanes: LaneRegistry) -> None:
        self._store = store
        self._registry = registry
        self._lanes = lanes
        self._depths: dict[tuple[TenantId, str | None], _Depth] = {}

    def admit(self, tenant: TenantId, definitions: Iterable[JobDefinition]) -> None:
        """Count jobs that run at once. Raises QueueFull or OverQuota if they do not fit, all together;
        then none is counted."""
        if not self._depths:
            return
        wanted: Counter[str | None] = Counter()
        for item in definitions:
            if item.schedule.kind is ScheduleKind.NOW:
                wanted[item.queue] += 1
        wanted[None] = wanted.total()
        found = [(queue, count, self._depths.get((tenant, queue))) for queue, count in wanted.items() if count]
        for queue, count, depth in found:
            if depth is not None and depth.waiting + count > depth.most:
                raise _full(queue, count, depth)
        for _, count, depth in found:
            if depth is not None:
                depth.waiting += count
                depth.recent += count

    async def count(self) -> None:
        """Count what waits. A count ends a little above its limit, so its cost is bounded by the limit."""
        limited = self._registry.with_depth()
        if not limited:
            self._depths = {}
            return
        counted: dict[tuple[TenantId, str | None], _Depth] = {}
        async with self._store.reads.acquire() as connection:
            for gate in limited:
                key, most = (gate.tenant_id, gate.queue), gate.most_waiting
                assert most is not None
                if (before := self._depths.get(key)) is not None:
                    before.recent = 0
                number = await gates.count_waiting(connection, self._lanes_of(gate), most + _ROOM)
                counted[key] = _Depth(most, number, quota=most == gate.queued_runs)
        for key, depth in counted.items():
            if (before := self._depths.get(key)) is not None:
                depth.waiting += before.recent
        self._depths = counted

    def _lanes_of(self, gate: Gate) -> list[int]:
        if gate.queue is not None:
            return self._lanes.of_queue(gate.tenant_id, gate.queue)
        return self._lanes.of_tenant(gate.tenant_id)


def _full(queue: str | None, count: int, depth: _Depth) -> Unavailable:
    if depth.quota:
        return over("queued_runs", depth.most, depth.waiting, more=count)
    where = "the tenant" if queue is None else f"queue {queue}"
    more = "" if count == 1 else f", and these are {count} more"
    return QueueFull(
        f"{depth.waiting} runs wait in {where}{more}; its max_depth is {depth.most}",
        field="queue", hint="try again later, or raise max_depth; schedules go on firing",
    )  # fmt: skip
