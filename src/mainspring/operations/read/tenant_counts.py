"""The current counts of queues, workers and dead letters of a tenant, for the metrics and the overview."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from mainspring.domain.rollups import Span, floor_to
from mainspring.domain.worker_state import WorkerState
from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.operations.access.caller import Caller
from mainspring.operations.read.queues import QueueReader
from mainspring.operations.read.scaling import ScalingReader
from mainspring.operations.read.windows import Sum
from mainspring.store import dead_letters, gauges, rollups, workers
from mainspring.store.dead_letters import Size
from mainspring.store.gauges import DatabaseFigures
from mainspring.store.pool import Store
from mainspring.wire.insights import QueueScale
from mainspring.wire.runs import QueueView

_MOST_TASKS = 1000
_MINUTE = timedelta(minutes=1)
_DAY = timedelta(days=1)


class TenantCounts(msgspec.Struct, frozen=True):
    """`workers`: how many are in each state. `slots`: the slots of the live workers. `taken_at`: when the runs were
    counted, if that was not now. `scales`: the scaling signal of the queues."""

    queues: list[QueueView]
    workers: dict[str, int]
    slots: int
    dead_letters: Size
    taken_at: datetime | None = None
    scales: list[QueueScale] = []


class TaskEnds(msgspec.Struct, frozen=True):
    """The runs of a task in a queue that ended since midnight in UTC."""

    task: str
    queue: str
    ends: Sum


class TenantCountsReader:
    def __init__(self, store: Store, queues: QueueReader, scaling: ScalingReader) -> None:
        self._store = store
        self._queues = queues
        self._scaling = scaling

    async def counts(self, caller: Caller) -> TenantCounts:
        queues = await self._queues.queues_at_once(caller)
        async with self._store.reads.acquire() as connection:
            counts = await workers.counts(connection, caller.tenant)
            dead = await dead_letters.count(connection, caller.tenant)
        return TenantCounts(
            queues.queues,
            {WorkerState(row.state).name: row.count for row in counts},
            sum(row.slots for row in counts if row.state in (WorkerState.LIVE, WorkerState.DRAINING)),
            dead,
            queues.taken_at,
        )

    async def with_scales(self, caller: Caller) -> TenantCounts:
        """The counts, and how many slots each queue wants."""
        counts = await self.counts(caller)
        scales = await self._scaling.of_queues(caller, counts.queues)
        return msgspec.structs.replace(counts, scales=scales)

    async def database(self, caller: Caller) -> DatabaseFigures | None:
        """How near PostgreSQL is to its limits: for the tenant `default`, that of the instance administrator."""
        if caller.tenant != DEFAULT_TENANT:
            return None
        async with self._store.reads.acquire() as connection:
            return await gauges.database_figures(connection)

    async def by_task(self, caller: Caller) -> list[TaskEnds]:
        """The runs that ended since midnight in UTC, by task and queue. There are at most 1,000 tasks."""
        found: dict[tuple[str, str], Sum] = {}
        async with self._store.reads.acquire() as connection:
            until = await rollups.watermark(connection)
            if until is None:
                return []
            for span, step in ((Span.DAY, _DAY), (Span.MINUTE, _MINUTE)):  # the last minute is not in the day yet
                for row in await rollups.by_task(connection, caller.tenant, span, floor_to(until, step), _MOST_TASKS):
                    found.setdefault((row.task, row.queue), Sum()).add(row)
        return [TaskEnds(task, queue, ends) for (task, queue), ends in sorted(found.items())]


def activity_of(queue: QueueView) -> tuple[int, float]:
    """How much happens in a queue, compared with others."""
    return queue.depth + queue.held + queue.running, queue.rate
