"""Long polls: exchanges that wait at this server until there is something to run or to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from uuid import UUID

from mainspring.kernel.ids import EVERY_TENANT, TenantId
from mainspring.operations.claim.waiter import Waiter

# New runs are divided among at least this many idle waiters. Looking at all of them would cost a submission 10,000
# looks where 10,000 workers wait.
_MIN_CANDIDATES = 8
_MAX_REMEMBERED_STOPS = 10_000


class LongPolls:
    """The waiters of this server, one per worker. A newer exchange of a worker supersedes the older one."""

    def __init__(self) -> None:
        self._waiters: dict[UUID, Waiter] = {}
        self._stops: set[UUID] = set()
        self._with_unstarted: dict[UUID, Waiter] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def register(self, worker_id: UUID, tenant: TenantId, seq: int) -> Waiter:
        """Add a waiter for exchange `seq` of this worker, and disconnect that of an older exchange, or of the same one.
        If a newer one is here, that stays, and nobody wakes the waiter that is returned."""
        previous = self._waiters.get(worker_id)
        if previous is not None and previous.seq > seq:
            return Waiter(worker_id, tenant, seq, stop_requested=False)
        if previous is not None:
            previous.disconnect()
        waiter = Waiter(worker_id, tenant, seq, stop_requested=worker_id in self._stops)
        self._stops.discard(worker_id)
        self._waiters[worker_id] = waiter
        return waiter

    def release(self, waiter: Waiter) -> None:
        """Remove a waiter. Runs that are still reserved for it are offered to the others."""
        if self._waiters.get(waiter.worker_id) is waiter:
            del self._waiters[waiter.worker_id]
        if waiter.reserved_by_lane:
            self.offer(waiter.reserved_by_lane)

    async def wait(self, waiter: Waiter, seconds: float) -> bool:
        """Wait until the waiter is woken, at most for `seconds`. Return whether it was woken."""
        self.start_waiting(waiter)
        try:
            async with asyncio.timeout(seconds):  # wait_for would take a task of its own
                await waiter.event.wait()
        except TimeoutError:
            return waiter.event.is_set()
        finally:
            self.stop_waiting(waiter)
        return True

    def start_waiting(self, waiter: Waiter) -> None:
        """An exchange starts to wait. If it has free slots, wake the exchanges whose unstarted runs it could take."""
        demand = waiter.demand
        if demand.unstarted > 0:
            self._with_unstarted[waiter.worker_id] = waiter
        if demand.free > 0 and self._with_unstarted:
            for holder in self._with_unstarted.values():
                if holder is not waiter and _may_take_from(waiter, holder):
                    holder.wake()

    def stop_waiting(self, waiter: Waiter) -> None:
        if self._with_unstarted.get(waiter.worker_id) is waiter:
            del self._with_unstarted[waiter.worker_id]

    def wake_holders(self) -> None:
        """Wake the exchanges whose workers hold unstarted runs: some of these may have to come back."""
        for holder in self._with_unstarted.values():
            holder.wake()

    def has_idle_for(self, holder: Waiter) -> bool:
        """Whether a waiter here could start runs that `holder` has not started."""
        return any(_could_take_from(waiter, holder) for waiter in self._waiters.values())

    def reserve_recall(self, holder: Waiter, now: float, until: float) -> int:
        """Return how many unstarted runs of `holder` the idle waiters could start. These runs are reserved for them
        until then, so that no other worker is asked to return runs for the same slots."""
        unstarted = holder.demand.unstarted
        total = 0
        for waiter in self._waiters.values():
            if total == unstarted:
                break
            if _could_take_from(waiter, holder):
                count = min(unstarted - total, waiter.recall_capacity(now))
                waiter.reserve_recalled(count, now, until)
                total += count
        return total

    def offer(self, ready: Mapping[int, int]) -> None:
        """These lanes got so many runs. Wake idle waiters, each for its part; more capacity gets a larger part."""
        for lane_id, count in ready.items():
            idle = self.idle(lane_id, count)
            parts = divide(count, [waiter.capacity(lane_id) for waiter in idle])
            for waiter, part in zip(idle, parts, strict=True):
                if part > 0:
                    waiter.reserve(lane_id, part)

    def idle(self, lane_id: int, count: int) -> list[Waiter]:
        """Waiters with capacity for this lane, the largest first: a few, or as many as can take all the runs."""
        idle, total = [], 0
        for waiter in self._waiters.values():
            if waiter.available > 0 and lane_id in waiter.demand.lanes and (own := waiter.capacity(lane_id)) > 0:
                idle.append(waiter)
                total += own
                if total >= count and len(idle) >= _MIN_CANDIDATES:
                    break
        idle.sort(key=lambda waiter: waiter.capacity(lane_id), reverse=True)
        return idle

    def wanted_lanes(self) -> set[int]:
        """The lanes from which some waiter would take."""
        return {lane for waiter in self._waiters.values() if waiter.demand.free > 0 for lane in waiter.demand.lanes}

    def request_stop(self, worker_id: UUID) -> None:
        """This worker has runs to stop. If it does not wait here, its next exchange is told."""
        waiter = self._waiters.get(worker_id)
        if waiter is not None:
            waiter.request_stop()
        elif len(self._stops) < _MAX_REMEMBERED_STOPS:  # a hint: the regular check finds the runs anyway
            self._stops.add(worker_id)

    def close(self) -> None:
        """Disconnect every waiter: the server stops."""
        for waiter in self._waiters.values():
            waiter.disconnect()

    def disconnect_worker(self, worker_id: UUID) -> None:
        """Disconnect the waiter of a worker that is gone. It gets no more runs."""
        waiter = self._waiters.pop(worker_id, None)
        if waiter is not None:
            waiter.disconnect()

    def disconnect_tenant(self, tenant: TenantId) -> None:
        """Disconnect this tenant's waiters. One of its tokens was revoked, so each has to authenticate again."""
        for waiter in self._waiters.values():
            if waiter.tenant == tenant:
                waiter.disconnect()


def divide(count: int, capacities: Sequence[int]) -> list[int]:
    """Divide `count` in proportion to the capacities, never above them. The remainder goes to the first ones."""
    left, capacity_left = min(count, sum(capacities)), sum(capacities)
    parts = []
    for capacity in capacities:
        part = -(-left * capacity // capacity_left)
        parts.append(part)
        left, capacity_left = left - part, capacity_left - capacity
    return parts


def _could_take_from(waiter: Waiter, holder: Waiter) -> bool:
    idle = waiter.demand.free > 0 and not waiter.event.is_set()
    return idle and waiter is not holder and _may_take_from(waiter, holder)


def _may_take_from(idle: Waiter, holder: Waiter) -> bool:
    """Whether the idle waiter may take runs that `holder` holds. A shared worker returns nothing for a tenant's own
    worker: its runs most likely belong to another tenant, and would come back to it again and again."""
    return idle.tenant in (holder.tenant, EVERY_TENANT) and not holder.demand.eligible.isdisjoint(idle.demand.lanes)
