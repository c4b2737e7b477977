"""Claiming for a worker that divides its slots: portion by portion, and no more of a task than it has room for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mainspring.operations.exchange.claim import Claimer
from mainspring.store.lanes import Lane
from mainspring.store.pool import Connection
from mainspring.wire.exchange import ExchangeRequest, QueueShare, RunOrder


def rooms_asked_for(lanes: Sequence[Lane], request: ExchangeRequest) -> dict[int, int]:
    """The lanes from which this exchange would take something, and how many runs of each at most."""
    by_queue: Counter[str] = Counter()
    for share in request.shares:
        by_queue[share.queue] += share.most
    rooms: dict[int, int] = {}
    for lane in lanes:
        room = by_queue[lane.queue] if request.shares else request.free
        room = min(room, request.room.get(lane.task, room))
        if room > 0:
            rooms[lane.lane_id] = room
    return rooms


async def claim_in_shares(
    claimer: Claimer, connection: Connection, lanes: Sequence[Lane], free: int, limit: int, request: ExchangeRequest
) -> list[RunOrder]:
    """Up to `limit` runs for `free` slots: the portions are filled in the order given, each from the lanes of its
    queue."""
    claim = _ClaimInShares(claimer, connection, request)
    if not request.shares:
        return await claim.take(lanes, limit)
    by_queue: dict[str, list[Lane]] = {}
    for lane in lanes:
        by_queue.setdefault(lane.queue, []).append(lane)
    taken: list[RunOrder] = []
    given: set[str] = set()
    emptied: set[str] = set()
    for share in request.shares:
        if len(taken) >= limit:
            break
        most = min(share.most, limit - len(taken), free - len(taken) - _kept(share, given))
        if most <= 0 or share.queue in emptied or share.queue not in by_queue:
            continue
        orders = await claim.take(by_queue[share.queue], most)
        taken += orders
        if orders:
            given.add(share.queue)
        if len(orders) < most:
            emptied.add(share.queue)
    return taken


def _kept(share: QueueShare, given: set[str]) -> int:
    return sum(queue not in given for queue in share.keep_for)


class _ClaimInShares:
    """Claims of one exchange that together keep to the room of each task."""

    def __init__(self, claimer: Claimer, connection: Connection, request: ExchangeRequest) -> None:
        self._claimer = claimer
        self._connection = connection
        self._request = request
        self._room: dict[str, int] = dict(request.room)

    async def take(self, lanes: Sequence[Lane], most: int) -> list[RunOrder]:
        """Up to `most` runs of these lanes, by priority and age whichever task they are of. At first only so many that
        no mix of them could be too many of the task with the least room; then the same without that task, and so on."""
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
