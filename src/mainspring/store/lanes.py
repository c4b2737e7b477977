"""Lanes: interned (tenant, queue, priority, task, required labels).

There are few lanes, and they never change, so a process keeps all of them in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter

import msgspec

from mainspring.domain.job import JobDefinition, Priority
from mainspring.domain.narrowing import Narrowing
from mainspring.domain.worker_needs import labels_in, labels_text
from mainspring.domain.workflows.flow import SERVER_TASKS
from mainspring.kernel.ids import EVERY_TENANT, TenantId
from mainspring.store.pool import Connection, Store, connect
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("lanes")
_tenant = attrgetter("tenant_id")


class Lane(msgspec.Struct, frozen=True):
    lane_id: int
    tenant_id: TenantId
    queue: str
    priority: int
    task: str
    labels: str = ""

    @property
    def required_labels(self) -> dict[str, str] | None:
        """The labels that a worker needs to take runs of this lane."""
        return labels_in(self.labels)


_all_lanes = RowQuery(Lane, _SQL["all_lanes"])

LaneKey = tuple[TenantId, str, int, str, str]


def lane_key(tenant: TenantId, definition: JobDefinition) -> LaneKey:
    """The lane in which the runs of a definition wait."""
    labels = labels_text(definition.required_labels)
    return (tenant, definition.queue, int(definition.priority), definition.task, labels)


class LaneRegistry:
    """All lanes known to this process. `refresh` reads only new lanes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_key: dict[LaneKey, int] = {}
        self._by_id: dict[int, Lane] = {}
        self._newest = 0

    @property
    def revision(self) -> int:
        """Changes whenever a lane is added."""
        return len(self._by_id)

    async def refresh(self, connection: Connection | None = None) -> None:
        for lane in await _all_lanes.fetch(connection or self._store.reads, self._newest):
            self._add(lane)

    def known(self, key: LaneKey) -> int | None:
        return self._by_key.get(key)

    async def intern(self, connection: Connection, keys: Iterable[LaneKey]) -> dict[LaneKey, int]:
        """The ids of `keys`. New keys are interned, and stay even if the caller's transaction is rolled back."""
        wanted = sorted(set(keys))
        missing = [key for key in wanted if key not in self._by_key]
        if missing and connection.is_in_transaction():
            # Not from a pool: the caller holds a connection of the pool, and many such callers could exhaust it.
            own = await connect(self._store.database, application="lanes")
            try:
                await self._intern_all(own, missing)
            finally:
                await own.close()
        else:
            await self._intern_all(connection, missing)
        return {key: self._by_key[key] for key in wanted}

    async def _intern_all(self, connection: Connection, missing: Iterable[LaneKey]) -> None:
        for key in missing:
            await connection.execute(_SQL["intern"], *key)
            lane_id: int = await connection.fetchval(_SQL["find"], *key)
            self._by_key[key] = lane_id
            self._by_id.setdefault(lane_id, Lane(lane_id, *key))

    async def get(self, lane_id: int) -> Lane:
        lane = self._by_id.get(lane_id)
        if lane is None:
            await self.refresh()
            lane = self._by_id[lane_id]
        return lane

    def priority_of(self, lane_id: int) -> Priority:
        """Normal if the lane is not known yet."""
        lane = self._by_id.get(lane_id)
        return Priority.NORMAL if lane is None else Priority(lane.priority)

    def peek(self, lane_id: int) -> Lane | None:
        return self._by_id.get(lane_id)

    def eligible(
        self, tenant: TenantId, queues: Iterable[str], tasks: Iterable[str], labels: Mapping[str, str]
    ) -> list[Lane]:
        """The lanes from which a worker with these queues, tasks and labels may take, grouped by tenant."""
        queue_set, task_set, label_set = set(queues), set(tasks) - SERVER_TASKS, labels.items()
        shared = tenant == EVERY_TENANT
        found = [
            lane
            for lane in self._by_id.values()
            if (shared or lane.tenant_id == tenant)
            and lane.queue in queue_set
            and lane.task in task_set
            and (not lane.labels or (lane.required_labels or {}).items() <= label_set)
        ]
        if shared:
            found.sort(key=_tenant)
        return found

    def of_queue(self, tenant: TenantId, queue: str) -> list[int]:
        return [lane.lane_id for lane in self._by_id.values() if lane.tenant_id == tenant and lane.queue == queue]

    def of_tenant(self, tenant: TenantId) -> list[int]:
        return [lane.lane_id for lane in self._by_id.values() if lane.tenant_id == tenant]

    def of_task(self, tenant: TenantId, task: str) -> list[int]:
        return [lane.lane_id for lane in self._by_id.values() if lane.tenant_id == tenant and lane.task == task]

    def within(self, tenant: TenantId, reach: Narrowing) -> list[int]:
        """The lanes whose queue and task a narrowed token reaches."""
        return [
            lane.lane_id
            for lane in self._by_id.values()
            if lane.tenant_id == tenant and reach.has_queue(lane.queue) and reach.has_task(lane.task)
        ]

    def of_any_tenant(self, task: str) -> list[int]:
        return [lane.lane_id for lane in self._by_id.values() if lane.task == task]

    def of_priority(self, priority: int) -> list[int]:
        return [lane.lane_id for lane in self._by_id.values() if lane.priority == priority]

    def tasks(self, tenant: TenantId) -> set[str]:
        return {lane.task for lane in self._by_id.values() if lane.tenant_id == tenant}

    def queues(self, tenant: TenantId) -> dict[str, list[int]]:
        grouped: dict[str, list[int]] = {}
        for lane in self._by_id.values():
            if lane.tenant_id == tenant:
                grouped.setdefault(lane.queue, []).append(lane.lane_id)
        return grouped

    def _add(self, lane: Lane) -> None:
        self._by_id[lane.lane_id] = lane
        self._by_key[(lane.tenant_id, lane.queue, lane.priority, lane.task, lane.labels)] = lane.lane_id
        self._newest = max(self._newest, lane.lane_id)
