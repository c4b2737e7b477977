"""Parked exchanges: workers that wait at this server for something to run or to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from uuid import UUID


class Spot:
    """One parked exchange. It is woken for a reason: ready, stop, superseded, or somebody idle for its unstarted runs.

    lanes are those from which it would take now, all_lanes those from which its worker may ever take; promised is how
    many runs were asked back from others for it, which holds until promised_until.
    """

    __slots__ = (
        "all_lanes", "event", "free", "lanes", "parked_for", "promised", "promised_until", "see_lanes", "stop",
        "superseded", "unstarted", "worker_id",
    )  # fmt: skip

    def __init__(self, worker_id: UUID) -> None:
        self.worker_id = worker_id
        self.event = asyncio.Event()
        self.free = 0
        self.unstarted = 0
        self.promised = 0
        self.promised_until = 0.0
        self.lanes: Collection[int] = ()
        self.all_lanes: frozenset[int] = frozenset()
        self.see_lanes: Callable[[], None] = lambda: None
        self.superseded = False
        self.parked_for = 0.0
        self.stop = False


class Parking:
    """Who is parked here, and whom to wake. One spot a worker: a newer exchange supersedes the older."""

    def __init__(self) -> None:
        self._spots: dict[UUID, Spot] = {}
        self._stops: set[UUID] = set()
        self._overfull: dict[UUID, Spot] = {}

    def __len__(self) -> int:
        return len(self._spots)

    def arrive(self, worker_id: UUID) -> Spot:
        """A new exchange of this worker: it takes the spot, and the exchange that held it ends."""
        before = self._spots.get(worker_id)
        if before is not None:
            before.superseded = True
            before.event.set()
        spot = Spot(worker_id)
        spot.stop = worker_id in self._stops
        self._stops.discard(worker_id)
        self._spots[worker_id] = spot
        return spot

    def leave(self, spot: Spot) -> None:
        if self._spots.get(spot.worker_id) is spot:
            del self._spots[spot.worker_id]

    def park(self, spot: Spot) -> None:
        """It begins to wait. Idle, it wakes those parked here that hold runs which it could start."""
        if spot.unstarted > 0:
            self._overfull[spot.worker_id] = spot
        if spot.free > 0 and self._overfull:
            for other in self._overfull.values():
                if other is not spot and not other.all_lanes.isdisjoint(spot.lanes):
                    other.event.set()

    def unpark(self, spot: Spot) -> None:
        if self._overfull.get(spot.worker_id) is spot:
            del self._overfull[spot.worker_id]

    def anybody_idle(self, giver: Spot) -> bool:
        """Whether somebody who waits here could start runs that `giver` holds unstarted."""
        return any(_could_take(spot, giver) for spot in self._spots.values())

    def promise(self, giver: Spot, now: float, until: float) -> int:
        """How many of the unstarted runs of `giver` the idle ones here could start. They are promised them, and nobody
        else's, until then."""
        promised = 0
        for spot in self._spots.values():
            if promised == giver.unstarted:
                break
            if _could_take(spot, giver):
                if now >= spot.promised_until:
                    spot.promised = 0
                count = min(giver.unstarted - promised, spot.free - spot.promised)
                spot.promised += count
                spot.promised_until = until
                promised += count
        return promised

    def see_lanes(self) -> None:
        """There are new lanes: let every parked exchange see which of them it may take from."""
        for spot in self._spots.values():
            spot.see_lanes()

    def ready(self, born: Mapping[int, int]) -> None:
        """Lanes got runs: wake as many waiting workers as it takes to have room for them all."""
        for lane_id, count in born.items():
            wanted = count
            for spot in self._spots.values():
                if wanted <= 0:
                    break
                if spot.free > 0 and not spot.event.is_set() and lane_id in spot.lanes:
                    wanted -= spot.free
                    spot.event.set()

    def lanes(self) -> set[int]:
        """The lanes from which somebody parked here would take."""
        return {lane_id for spot in self._spots.values() if spot.free > 0 for lane_id in spot.lanes}

    def stop(self, worker_id: UUID) -> None:
        """This worker has runs to stop; remembered until its next exchange if it is not parked."""
        spot = self._spots.get(worker_id)
        if spot is None:
            if len(self._stops) < 10_000:  # a hint: the regular look finds it anyway
                self._stops.add(worker_id)
            return
        spot.stop = True
        spot.event.set()

    def close(self) -> None:
        """The server stops: end every parked exchange with an empty answer."""
        for spot in self._spots.values():
            spot.superseded = True
            spot.event.set()


def _could_take(spot: Spot, giver: Spot) -> bool:
    return (
        spot.free > 0 and spot is not giver and not spot.event.is_set() and not giver.all_lanes.isdisjoint(spot.lanes)
    )
