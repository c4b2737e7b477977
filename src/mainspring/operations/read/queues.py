"""Reads queues: waiting and running runs, throughput and number of workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mainspring.domain.errors import NotFound
from mainspring.operations.access.caller import Caller
from mainspring.store import history, workers
from mainspring.store.history import LaneDepth
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import Store
from mainspring.wire.runs import QueueList, QueueView


class QueueReader:
    def __init__(self, store: Store, lanes: LaneRegistry) -> None:
        self._store = store
        self._lanes = lanes

    async def queues(self, caller: Caller) -> QueueList:
        tenant = caller.tenant
        await self._lanes.refresh()
        async with self._store.reads.acquire() as connection:
            depths = {depth.lane_id: depth for depth in await history.queue_depths(connection, tenant)}
            ended = await history.ended_last_minute(connection, tenant)
            offers = await workers.offers_by_queue(connection, tenant)
        grouped = self._lanes.queues(tenant)
        for queue in offers:
            grouped.setdefault(queue, [])
        return QueueList(
            [_view(name, lanes, depths, ended, offers.get(name, 0)) for name, lanes in sorted(grouped.items())]
        )

    async def queue(self, caller: Caller, name: str) -> QueueView:
        for view in (await self.queues(caller)).queues:
            if view.name == name:
                return view
        raise NotFound(f"there is no queue {name!r}", hint="a queue exists as soon as it has a job or a worker")


def _view(
    name: str, lane_ids: Sequence[int], depths: Mapping[int, LaneDepth], ended: Mapping[int, int], offering: int
) -> QueueView:
    found = [depths[lane_id] for lane_id in lane_ids if lane_id in depths]
    ages = [depth.oldest for depth in found if depth.oldest is not None]
    return QueueView(
        name=name,
        depth=sum(depth.depth for depth in found),
        scheduled=sum(depth.scheduled for depth in found),
        running=sum(depth.running for depth in found),
        oldest_seconds=max(ages) if ages else None,
        rate=round(sum(ended.get(lane_id, 0) for lane_id in lane_ids) / 60, 3),
        workers=offering,
    )
