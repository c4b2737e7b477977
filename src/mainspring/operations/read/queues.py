"""Reads queues: waiting and running runs, throughput and number of workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from heapq import nsmallest

from mainspring.domain.errors import NotFound
from mainspring.domain.rollups import floor_to
from mainspring.domain.worker_state import WorkerState
from mainspring.kernel.ids import TenantId
from mainspring.operations.access.caller import Caller
from mainspring.operations.limits.gate_views import gate_view, own_gates, pause_in_words
from mainspring.operations.paging.search import search_in_words
from mainspring.operations.read.queue_behind import behind
from mainspring.operations.read.quota_hold import quota_hold
from mainspring.operations.signatures.offers import untaken
from mainspring.store import gates, gauges, history, rollups, workers
from mainspring.store.history import LaneDepth
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import Connection, Store
from mainspring.store.rollups import QueueEnds
from mainspring.store.searches import SearchTooSlow
from mainspring.wire.gates import GateView
from mainspring.wire.runs import QueueList, QueueView

MOST_QUEUES = 10_000
MANY_RUNS = 20_000  # that are not counted for a request
_MINUTE = timedelta(minutes=1)
_MOST_WORKERS = 1000
_MOST_REASONS = 5
_NOTHING = QueueEnds("", 0, 0, 0)
_SECONDS = 10.0  # counting the runs of a long backlog takes a second for each million


class QueueReader:
    def __init__(self, store: Store, lanes: LaneRegistry, many: int = MANY_RUNS) -> None:
        self._many = many
        self._store = store
        self._lanes = lanes

    async def queues(self, caller: Caller, only: str | None = None) -> QueueList:
        """The queues of the tenant, by name. A list has 10,000 queues at most, and says how many it leaves out. `only`:
        this queue, if there is one."""
        with search_in_words("queues"):
            found = await self._queues(caller.tenant, self._store.search(caller.tenant, seconds=_SECONDS), only)
        return _within(caller, found)

    async def queues_at_once(self, caller: Caller) -> QueueList:
        """As `queues`, without waiting for the searches of the tenant. The metrics use it, because they must show an
        overload."""
        with search_in_words("queues"):
            return await self._queues(caller.tenant, self._store.read(seconds=_SECONDS))

    async def untaken(self, caller: Caller, most: int, only: str | None = None) -> list[tuple[str, int]]:
        """How many runs wait that no live worker of their queue takes, by the reason. Queues without a worker are left
        out: they are told as a whole. Nothing is said if counting takes too long. `only`: those of this queue."""
        tenant = caller.tenant
        try:
            async with self._store.read(seconds=_SECONDS) as connection:
                counted = (
                    history.queue_depths if await gauges.many_live(connection, self._many) is None else gauges.depths
                )
                depths = [depth for depth in await counted(connection, tenant) if depth.depth]
                offers = await workers.offers(connection, tenant) if depths else []
        except SearchTooSlow:
            return []
        served = set[str]().union(*(offer.queues for offer in offers))
        lanes = ((self._lanes.peek(depth.lane_id), depth.depth) for depth in depths)
        wanted = served if only is None else served & {only}
        return untaken([(lane, number) for lane, number in lanes if lane and lane.queue in wanted], offers, most)

    async def queue(self, caller: Caller, name: str) -> QueueView:
        with search_in_words("queues"):
            found = await self._queues(caller.tenant, self._store.search(caller.tenant, seconds=_SECONDS), name)
        if not found.queues:
            raise no_queue(name)
        [view] = found.queues
        view.behind = await self._behind(caller, view) if view.depth or view.held else []
        return view

    async def _behind(self, caller: Caller, view: QueueView) -> list[str]:
        async with self._store.read(seconds=_SECONDS) as connection:
            known = await gates.of_tenant(connection, caller.tenant)
            rows = await workers.list_workers(connection, caller.tenant, _MOST_WORKERS)
        alive = (WorkerState.LIVE, WorkerState.DRAINING)
        takers = [row for row in rows if row.state in alive and view.name in (row.queues or ())]
        takes = any(row.state == WorkerState.LIVE for row in takers)
        reasons = await self.untaken(caller, _MOST_REASONS, view.name) if takes else []
        return behind(view, own_gates(known, view.name), takers, reasons)

    async def tenant_limits(self, caller: Caller) -> GateView:
        """What limits all runs of the tenant."""
        async with self._store.reads.acquire() as connection:
            known = await gates.of_tenant(connection, caller.tenant)
        own = [gate for gate in known if gate.tenant_id == caller.tenant and gate.queue is None]
        return gate_view(own[0]) if own else GateView(None)

    async def _queues(
        self, tenant: TenantId, opened: AbstractAsyncContextManager[Connection], only: str | None = None
    ) -> QueueList:
        await self._lanes.refresh()
        async with opened as connection:
            taken_at = await gauges.many_live(connection, self._many)
            counted = history.queue_depths if taken_at is None else gauges.depths
            depths = {depth.lane_id: depth for depth in await counted(connection, tenant)}
            ended = await self._ended(connection, tenant)
            offers = await workers.offers_by_queue(connection, tenant)
            every = await gates.of_tenant(connection, tenant)
        known = [gate for gate in every if gate.has_settings]
        grouped = self._lanes.queues(tenant)
        for queue in offers:
            grouped.setdefault(queue, [])
        for gate in known:
            if gate.queue is not None:
                grouped.setdefault(gate.queue, [])
        names = nsmallest(MOST_QUEUES, grouped) if only is None else [only] if only in grouped else []
        of_queue = {gate.queue: gate for gate in known if gate.queue is not None}
        versions = {gate.queue: gate.version for gate in every}
        of_all = [gate for gate in known if gate.queue is None]
        views = []
        for name in names:
            view = _view(name, grouped[name], depths, ended.get(name, _NOTHING), offers.get(name, 0))
            own = of_queue.get(name)
            view.paused_why = pause_in_words(of_all if own is None else [own, *of_all])
            view.paused = view.paused_why is not None
            view.limits = None if own is None else gate_view(own)
            view.version = versions.get(name, 1)
            if quota_hold(every) is not None:
                view.held, view.held_by_quota, view.depth = view.held + view.depth, view.depth, 0
            views.append(view)
        return QueueList(views, left_out=len(grouped) - len(views) if only is None else 0, taken_at=taken_at)

    async def _ended(self, connection: Connection, tenant: TenantId) -> dict[str, QueueEnds]:
        """How many runs of each queue ended in the last minute. If very many ended, of all tenants, that of the last
        minute which is in the rollups."""
        until = await rollups.watermark(connection)
        if until is not None:
            last = floor_to(until, _MINUTE) - _MINUTE
            if await rollups.ended_in_minute(connection, last) > self._many:
                return {each.queue: each for each in await rollups.by_queue(connection, tenant, last)}
        ends: dict[str, QueueEnds] = {}
        for each in await history.ended_last_minute(connection, tenant):
            if (lane := self._lanes.peek(each.lane_id)) is not None:
                before = ends.get(lane.queue, _NOTHING)
                ends[lane.queue] = QueueEnds(
                    lane.queue,
                    before.ended + each.ended,
                    before.succeeded + each.succeeded,
                    before.failed + each.failed,
                )
        return ends


def _within(caller: Caller, found: QueueList) -> QueueList:
    """The queues that the token of the caller reaches."""
    reach = caller.narrowing
    if reach is None or reach.queues is None:
        return found
    return QueueList([view for view in found.queues if reach.has_queue(view.name)], taken_at=found.taken_at)


def no_queue(name: str) -> NotFound:
    return NotFound(f"there is no queue {name!r}", hint="a queue exists as soon as it has a job, a worker or a limit")


def _view(
    name: str, lane_ids: Sequence[int], depths: Mapping[int, LaneDepth], ended: QueueEnds, offering: int
) -> QueueView:
    found = [depths[lane_id] for lane_id in lane_ids if lane_id in depths]
    ages = [depth.oldest for depth in found if depth.oldest is not None]
    return QueueView(
        name=name,
        depth=sum(depth.depth for depth in found),
        scheduled=sum(depth.scheduled for depth in found),
        running=sum(depth.running for depth in found),
        oldest_seconds=max(ages) if ages else None,
        rate=round(ended.ended / 60, 3),
        workers=offering,
        succeeded=ended.succeeded,
        failed=ended.failed,
        held=sum(depth.held for depth in found),
    )
