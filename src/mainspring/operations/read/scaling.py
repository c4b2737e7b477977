"""The scaling signal of queues: what autoscalers of workers read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from mainspring.domain.rates import parse_rate
from mainspring.domain.rollups import Span, floor_to
from mainspring.domain.scaling import WITHIN, QueueLoad, scale_of
from mainspring.kernel.ids import TenantId
from mainspring.operations.access.caller import Caller
from mainspring.operations.read.queues import QueueReader
from mainspring.store import rollups, workers
from mainspring.store.pool import Connection, Store
from mainspring.wire.insights import QueueScale, Scaling
from mainspring.wire.runs import QueueView

_MINUTE = timedelta(minutes=1)
_DAY = timedelta(days=1)
_LOOK_BACK = 15 * _MINUTE


class ScalingReader:
    def __init__(self, store: Store, queues: QueueReader) -> None:
        self._store = store
        self._queues = queues

    async def scaling(self, caller: Caller, queue: str | None = None, within: float = WITHIN) -> Scaling:
        """Of all queues of the tenant, or of one. One that does not exist wants nothing: its first job makes it."""
        found = await self._queues.queues(caller, queue)
        scales = await self.of_queues(caller, found.queues, within)
        return Scaling(
            within_s=within,
            backlog_s=max((scale.backlog_s for scale in scales), default=0.0),
            slots_wanted=sum(scale.slots_wanted for scale in scales),
            queues=scales,
            left_out=found.left_out,
            taken_at=found.taken_at,
        )

    async def of_queues(self, caller: Caller, views: Sequence[QueueView], within: float = WITHIN) -> list[QueueScale]:
        if not views:
            return []
        async with self._store.reads.acquire() as connection:
            free = await workers.free_by_queue(connection, caller.tenant)
            durations = await _durations(connection, caller.tenant)
        return [_of_queue(view, free.get(view.name, 0), durations.get(view.name), within) for view in views]


async def _durations(connection: Connection, tenant: TenantId) -> dict[str, float]:
    """How long runs of each queue take: of the last quarter of an hour, or else of today and yesterday."""
    until = await rollups.watermark(connection)
    if until is None:
        return {}
    days = await rollups.durations_by_queue(connection, tenant, Span.DAY, floor_to(until, _DAY) - _DAY)
    minutes = await rollups.durations_by_queue(connection, tenant, Span.MINUTE, floor_to(until, _MINUTE) - _LOOK_BACK)
    return {each.queue: each.seconds / each.runs for each in (*days, *minutes)}


def _of_queue(view: QueueView, free: int, duration: float | None, within: float) -> QueueScale:
    limits = view.limits
    rate = None if limits is None or limits.rate is None else parse_rate(limits.rate, "rate")
    load = QueueLoad(
        waiting=view.depth, running=view.running, rate=view.rate, duration=duration, oldest=view.oldest_seconds,
        free=free, concurrency=None if limits is None else limits.concurrency,
        every=None if rate is None else rate.every, paused=view.paused,
    )  # fmt: skip
    scale = scale_of(load, within)
    return QueueScale(
        queue=view.name, waiting=view.depth, running=view.running, free=free, workers=view.workers,
        rate=view.rate, duration=None if duration is None else round(duration, 6), backlog_s=scale.backlog,
        slots_wanted=scale.slots_wanted,
    )  # fmt: skip
