"""The place of one exchange among the long polls: what it would take, and for what it was woken."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from uuid import UUID

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store.claimed_runs import ClaimedRun


class Demand(msgspec.Struct, frozen=True, gc=False):
    """What one exchange would take.

    free        how many runs in all
    unstarted   how many runs its worker holds and has not started
    lanes       the lanes from which it would take now
    eligible    the lanes from which its worker may ever take
    capacity    how many runs of each lane at most; None where `free` is the only limit
    """

    free: int = 0
    unstarted: int = 0
    lanes: Collection[int] = ()
    eligible: frozenset[int] = frozenset()
    capacity: Mapping[int, int] | None = None


_NO_DEMAND = Demand()


class Waiter:
    """One exchange that waits or may wait. Only its own methods change it.

    It is woken for a reason: runs are ready, a run is to be stopped, a newer exchange superseded it, or an idle worker
    could start the runs that its worker holds unstarted. The tenant is EVERY_TENANT for a shared worker.

    Runs are reserved for a waiter when it is woken for them, so that the next runs wake another one; `available` is its
    demand without these. Runs that other workers were asked to return for it are counted in `recalled` until
    `recalled_until`.

    Fresh runs that are being stored as its own are counted in `handing`. `hand_off` has what became of them: the runs
    that it owns by then, or None if that is not known. Until it is, the exchange must not be answered.
    """

    __slots__ = (
        "available", "demand", "event", "hand_off", "handing", "recalled", "recalled_until", "reserved",
        "reserved_by_lane", "seq", "stop_requested", "superseded", "tenant", "worker_id",
    )  # fmt: skip

    def __init__(self, worker_id: UUID, tenant: TenantId, seq: int, *, stop_requested: bool) -> None:
        self.worker_id = worker_id
        self.seq = seq
        self.tenant = tenant
        self.stop_requested = stop_requested
        self.superseded = False
        self.event = asyncio.Event()
        self.demand = _NO_DEMAND
        self.available = 0
        self.reserved = 0
        self.reserved_by_lane: dict[int, int] = {}
        self.recalled = 0
        self.recalled_until = 0.0
        self.handing = 0
        self.hand_off: asyncio.Future[list[ClaimedRun] | None] | None = None

    def set_demand(self, demand: Demand) -> None:
        self.demand = demand
        self.available = demand.free - self.reserved - self.handing

    def capacity(self, lane_id: int) -> int:
        """How many more runs of this lane it can take, besides those reserved for it."""
        by_lane = self.demand.capacity
        if by_lane is None:
            return self.available
        return min(self.available, by_lane.get(lane_id, 0) - self.reserved_by_lane.get(lane_id, 0))

    def reserve(self, lane_id: int, count: int) -> None:
        """Reserve runs of this lane, and wake the exchange to claim them."""
        self.reserved += count
        self.available -= count
        self.reserved_by_lane[lane_id] = self.reserved_by_lane.get(lane_id, 0) + count
        self.event.set()

    def take_reserved(self) -> int:
        """Return how many runs are reserved, and reset the reservation: the exchange is about to claim them."""
        reserved, self.reserved = self.reserved, 0
        self.available = self.demand.free
        self.reserved_by_lane.clear()
        return reserved

    @property
    def can_take_hand_off(self) -> bool:
        """Whether nothing is about to answer or to wake the exchange."""
        return self.hand_off is None and not self.superseded and not self.event.is_set()

    def begin_hand_off(self, count: int) -> None:
        """So many fresh runs are being stored as its own."""
        self.hand_off = asyncio.get_running_loop().create_future()
        self.handing = count
        self.available -= count

    def end_hand_off(self, runs: list[ClaimedRun]) -> None:
        """The hand-off is over, and these runs are its own. Without any, it goes on waiting."""
        under_way = self._stop_handing()
        if runs:
            self.event.set()
        else:
            self.hand_off = None
        under_way.set_result(runs)

    def doubt_hand_off(self) -> None:
        """Whether runs are its own is not known."""
        self._stop_handing().set_result(None)
        self.event.set()

    def _stop_handing(self) -> asyncio.Future[list[ClaimedRun] | None]:
        assert self.hand_off is not None
        self.available += self.handing
        self.handing = 0
        return self.hand_off

    def recall_capacity(self, now: float) -> int:
        """How many more runs other workers may be asked to return for it."""
        return self.demand.free - (self.recalled if now < self.recalled_until else 0)

    def reserve_recalled(self, count: int, now: float, until: float) -> None:
        """Count runs that another worker is asked to return for it. The reservation expires at `until`."""
        self.recalled = count + (self.recalled if now < self.recalled_until else 0)
        self.recalled_until = until

    def request_stop(self) -> None:
        """Wake the exchange to check for runs to stop."""
        self.stop_requested = True
        self.event.set()

    def take_stop_request(self) -> bool:
        requested, self.stop_requested = self.stop_requested, False
        return requested

    def wake(self) -> None:
        self.event.set()

    def disconnect(self) -> None:
        """Make the exchange reply at once, without runs."""
        self.superseded = True
        self.event.set()

    def clear_wakeup(self) -> None:
        """Make it wait again. The exchange looks at everything for which it may have been woken."""
        self.event.clear()
