"""Parked exchanges: workers that wait at this server for something to run or to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from uuid import UUID

from mainspring.kernel.ids import DEFAULT_TENANT, EVERY_TENANT, TenantId

# Among how many idle workers runs are divided, should fewer have room for them all. Looking at everybody would cost a
# submission 10,000 looks where 10,000 workers are parked.
_CHOICE = 8


class Waiter:
    """One parked exchange. It is woken for a reason: ready, stop, superseded, or somebody idle for its unstarted runs.

    lanes are those from which it would take now, all_lanes those from which its worker may ever take; rooms says how
    many of each lane, where that is not all that is free; granted is its part of the runs that it was woken for, by
    lane in woken_for; promised is how many runs were asked back from others for it, which holds until promised_until.
    tenant is whose runs it takes: EVERY_TENANT for those of all.
    """

    __slots__ = (
        "all_lanes",
        "event",
        "free",
        "granted",
        "lanes",
        "promised",
        "promised_until",
        "rooms",
        "see_lanes",
        "stop",
        "superseded",
        "tenant",
        "unstarted",
        "waited_for",
        "woken_for",
        "worker_id",
    )  # fmt: skip

    def __init__(self, worker_id: UUID, tenant: TenantId = DEFAULT_TENANT) -> None:
        self.worker_id = worker_id
        self.tenant = tenant
        self.event = asyncio.Event()
        self.free = 0
        self.unstarted = 0
        self.granted = 0
        self.woken_for: dict[int, int] = {}
        self.promised = 0
        self.promised_until = 0.0
        self.lanes: Collection[int] = ()
        self.rooms: Mapping[int, int] | None = None
        self.all_lanes: frozenset[int] = frozenset()
        self.see_lanes: Callable[[], None] = lambda: None
        self.superseded = False
        self.waited_for = 0.0
        self.stop = False

    def room(self, lane_id: int) -> int:
        """For how many more runs of this lane it has room, beside those that it was woken for."""
        room = self.free - self.granted
        if self.rooms is not None:
            room = min(room, self.rooms.get(lane_id, 0) - self.woken_for.get(lane_id, 0))
        return room

    def wake_for(self, lane_id: int, count: int) -> None:
        self.granted += count
        self.woken_for[lane_id] = self.woken_for.get(lane_id, 0) + count
        self.event.set()

    def end(self) -> None:
        """Its exchange answers without having waited any longer."""
        self.superseded = True
        self.event.set()

    def take_grant(self) -> int:
        """How many it was woken for; it is about to claim them."""
        granted, self.granted = self.granted, 0
        self.woken_for.clear()
        return granted


class LongPolls:
    """Who is parked here, and whom to wake. One spot a worker: a newer exchange supersedes the older."""

    def __init__(self) -> None:
        self._waiters: dict[UUID, Waiter] = {}
        self._stops: set[UUID] = set()
        self._overfull: dict[UUID, Waiter] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def arrive(self, worker_id: UUID, tenant: TenantId = DEFAULT_TENANT) -> Waiter:
        """A new exchange of this worker: it takes the spot, and the exchange that held it ends."""
        before = self._waiters.get(worker_id)
        if before is not None:
            before.end()
        waiter = Waiter(worker_id, tenant)
        waiter.stop = worker_id in self._stops
        self._stops.discard(worker_id)
        self._waiters[worker_id] = waiter
        return waiter

    def leave(self, waiter: Waiter) -> None:
        """It ends. What it was woken for too late to claim is offered to the others."""
        if self._waiters.get(waiter.worker_id) is waiter:
            del self._waiters[waiter.worker_id]
        if waiter.woken_for:
            self.ready(waiter.woken_for)

    def start_waiting(self, waiter: Waiter) -> None:
        """It begins to wait. Idle, it wakes those parked here that hold runs which it could start."""
        if waiter.unstarted > 0:
            self._overfull[waiter.worker_id] = waiter
        if waiter.free > 0 and self._overfull:
            for other in self._overfull.values():
                if other is not waiter and _may_hold_for(other, waiter):
                    other.event.set()

    def stop_waiting(self, waiter: Waiter) -> None:
        if self._overfull.get(waiter.worker_id) is waiter:
            del self._overfull[waiter.worker_id]

    def anybody_idle(self, giver: Waiter) -> bool:
        """Whether somebody who waits here could start runs that `giver` holds unstarted."""
        return any(_could_take(waiter, giver) for waiter in self._waiters.values())

    def promise(self, giver: Waiter, now: float, until: float) -> int:
        """How many of the unstarted runs of `giver` the idle ones here could start. They are promised them, and nobody
        else's, until then."""
        promised = 0
        for waiter in self._waiters.values():
            if promised == giver.unstarted:
                break
            if _could_take(waiter, giver):
                if now >= waiter.promised_until:
                    waiter.promised = 0
                count = min(giver.unstarted - promised, waiter.free - waiter.promised)
                waiter.promised += count
                waiter.promised_until = until
                promised += count
        return promised

    def see_lanes(self) -> None:
        """There are new lanes: let every parked exchange see which of them it may take from."""
        for waiter in self._waiters.values():
            waiter.see_lanes()

    def ready(self, created: Mapping[int, int]) -> None:
        """Lanes got runs: wake workers that wait for them, each for its part. Whoever has more room for them gets
        more."""
        for lane_id, count in created.items():
            idle = self._idle(lane_id, count)
            for waiter, part in zip(idle, divided(count, [waiter.room(lane_id) for waiter in idle]), strict=True):
                if part > 0:
                    waiter.wake_for(lane_id, part)

    def _idle(self, lane_id: int, count: int) -> list[Waiter]:
        """Who has room for runs of this lane, most room first: a few, or as many as have room for all of them."""
        idle, room = [], 0
        for waiter in self._waiters.values():
            if waiter.free > waiter.granted and lane_id in waiter.lanes and (own := waiter.room(lane_id)) > 0:
                idle.append(waiter)
                room += own
                if room >= count and len(idle) >= _CHOICE:
                    break
        idle.sort(key=lambda waiter: waiter.room(lane_id), reverse=True)
        return idle

    def lanes(self) -> set[int]:
        """The lanes from which somebody parked here would take."""
        return {lane_id for waiter in self._waiters.values() if waiter.free > 0 for lane_id in waiter.lanes}

    def stop(self, worker_id: UUID) -> None:
        """This worker has runs to stop; remembered until its next exchange if it is not parked."""
        waiter = self._waiters.get(worker_id)
        if waiter is None:
            if len(self._stops) < 10_000:  # a hint: the regular look finds it anyway
                self._stops.add(worker_id)
            return
        waiter.stop = True
        waiter.event.set()

    def close(self) -> None:
        """End every parked exchange with an empty answer: the server stops."""
        for waiter in self._waiters.values():
            waiter.end()

    def send_off(self, tenant: TenantId) -> None:
        """End this tenant's parked exchanges: a token was revoked, perhaps theirs, so they have to come in again."""
        for waiter in self._waiters.values():
            if waiter.tenant == tenant:
                waiter.end()


def divided(count: int, rooms: Sequence[int]) -> list[int]:
    """`count` in parts as large as the rooms are, and no larger than them; what is left over goes to the first ones."""
    left, room_left = min(count, sum(rooms)), sum(rooms)
    parts = []
    for room in rooms:
        part = -(-left * room // room_left)
        parts.append(part)
        left, room_left = left - part, room_left - room
    return parts


def _could_take(waiter: Waiter, giver: Waiter) -> bool:
    return waiter.free > 0 and waiter is not giver and not waiter.event.is_set() and _may_hold_for(giver, waiter)


def _may_hold_for(giver: Waiter, idle: Waiter) -> bool:
    """Whether runs that `giver` holds may be such as the idle one takes. A shared worker gives nothing back for a
    tenant's own: what it holds is most likely somebody else's, and would come back to it again and again."""
    return idle.tenant in (giver.tenant, EVERY_TENANT) and not giver.all_lanes.isdisjoint(idle.lanes)
