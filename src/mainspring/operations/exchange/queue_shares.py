"""Claims for a worker that divides its slots: share by share, and no more runs of a task than it has room for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from mainspring.store.lanes import Lane
from mainspring.store.pool import Connection
from mainspring.wire.exchange import ExchangeRequest, QueueShare, RunOrder


class Claims(Protocol):
    """A Claimer or a GatedClaim."""

    async def claim(
        self, connection: Connection, lanes: Sequence[Lane], limit: int, worker_id: UUID, seq: int, /
    ) -> list[RunOrder]: ...


def capacity_by_lane(lanes: Sequence[Lane], request: ExchangeRequest) -> dict[int, int]:
    """The lanes from which this exchange would take runs, and how many of each at most."""
    by_queue: Counter[str] = Counter()
    for share in request.shares:
        by_queue[share.queue] += share.most
    capacities: dict[int, int] = {}
    for lane in lanes:
        capacity = by_queue[lane.queue] if request.shares else request.free
        capacity = min(capacity, request.room.get(lane.task, capacity))
        if capacity > 0:
            capacities[lane.lane_id] = capacity
    return capacities


async def claim_by_shares(
    claimer: Claims, connection: Connection, lanes: Sequence[Lane], free: int, limit: int, request: ExchangeRequest
) -> list[RunOrder]:
    """Claim up to `limit` runs for `free` slots. Shares are filled in the order given, each from the lanes of its
    queue."""
    claim = _ClaimWithinRoom(claimer, connection, request)
    if not request.shares:
        return await claim.take(lanes, limit)
    by_queue: dict[str, list[Lane]] = {}
    for lane in lanes:
        by_queue.setdefault(lane.queue, []).append(lane)
    taken: list[RunOrder] = []
    served: set[str] = set()
    emptied: set[str] = set()
    for share in request.shares:
        if len(taken) >= limit:
            break
        most = min(share.most, limit - len(taken), free - len(taken) - _kept_free(share, served))
        if most <= 0 or share.queue in emptied or share.queue not in by_queue:
            continue
        orders = await claim.take(by_queue[share.queue], most)
        taken += orders
        if orders:
            served.add(share.queue)
        if len(orders) < most:
            emptied.add(share.queue)
    return taken


def _kept_free(share: QueueShare, served: set[str]) -> int:
    """How many slots this share leaves free: one for each queue in `keep_for` that has got no run yet."""
    return sum(queue not in served for queue in share.keep_for)


class _ClaimWithinRoom:
    """The claims of one exchange. Together they take no more runs of a task than the worker has room for."""

    def __init__(self, claimer: Claims, connection: Connection, request: ExchangeRequest) -> None:
        self._claimer = claimer
        self._connection = connection
        self._request = request
        self._room: dict[str, int] = dict(request.room)

    async def take(self, lanes: Sequence[Lane], most: int) -> list[RunOrder]:
        """Claim up to `most` runs of these lanes by priority and age, whatever their task.

        The tasks of the next runs are not known before the claim. So each step claims only as many runs as the task
        with the least room allows. Then tasks without room are left out, and the next step follows.
        """
        taken: list[RunOrder] = []
        left = {task: room for task in {lane.task for lane in lanes} if (room := self._room.get(task)) is not None}
        while len(taken) < most:
            open_lanes = [lane for lane in lanes if left.get(lane.task, 1) > 0]
            step = min([most - len(taken), *(room for room in left.values() if room > 0)])
            orders = await self._claimer.claim(
                self._connection, open_lanes, step, self._request.worker_id, self._request.seq
            )
            taken += orders
            if len(orders) < step:
                break
            left = {task: room - step for task, room in left.items()}
        for order in taken:
            if order.task in self._room:
                self._room[order.task] -= 1
        return taken
