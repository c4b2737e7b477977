"""The state of one exchange, which its steps share."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.operations.claim.waiter import Demand, Waiter
from mainspring.operations.exchange.patience import RescuePatience
from mainspring.operations.exchange.queue_shares import capacity_by_lane
from mainspring.operations.exchange.worker_registry import CachedWorker
from mainspring.store.lanes import LaneRegistry
from mainspring.store.workers import WorkerState
from mainspring.wire.exchange import ExchangeReply, ExchangeRequest

_LIVE = int(WorkerState.LIVE)


class Exchange(msgspec.Struct, eq=False):
    """One call of a worker, from its arrival to its reply.

    An exchange that waits goes through several rounds; each round starts with an empty reply.

    arrived          when it came
    deadline         when it replies, also with nothing
    patience         how long it waits for what others hold
    numbered         whether its sequence number was taken
    committed        whether its sequence number and all its outcomes were taken
    woken            whether the last wait ended because it was woken
    waited           whether it has waited at all
    seconds_waited   how long it has waited in all
    before_wait      is called before it waits: by then its body is dealt with
    """

    tenant: TenantId
    request: ExchangeRequest
    worker: CachedWorker
    waiter: Waiter
    reply: ExchangeReply
    arrived: float
    deadline: float
    patience: RescuePatience
    numbered: bool = False
    committed: bool = False
    woken: bool = False
    waited: bool = False
    seconds_waited: float = 0.0
    before_wait: Callable[[], None] | None = None

    @property
    def must_write(self) -> bool:
        """Whether the worker reports something. Such an exchange is written and answered at once."""
        return reports(self.request)

    def start_next_round(self) -> None:
        """Begin again after a wait."""
        self.waiter.clear_wakeup()
        self.patience.renew()
        self.reply = ExchangeReply(seq=self.request.seq)

    def update_demand(self, lanes: LaneRegistry) -> None:
        """Tell the long polls what this exchange would take, considering the lanes that exist now."""
        request, worker = self.request, self.worker
        worker.refresh_lanes(lanes)
        free = 0 if request.draining or worker.state != _LIVE else request.free
        if request.shares or request.room:
            capacity = capacity_by_lane(worker.lanes, request)
            demand = Demand(free, request.unstarted, capacity, worker.lane_ids, capacity)
        else:
            demand = Demand(free, request.unstarted, worker.lane_ids, worker.lane_ids)
        self.waiter.set_demand(demand)

    def take_part(self, free: int) -> int:
        """How many runs to claim for `free` slots. An exchange that was woken together with others claims its part. One
        that has just arrived fills its slots."""
        reserved = self.waiter.take_reserved()
        return min(free, reserved) if self.woken and reserved else free

    def supersede(self, retry_in: float | None = None) -> None:
        """A newer exchange of the worker took over, or this one waited for too long: reply without runs."""
        self.reply = ExchangeReply(seq=self.request.seq, superseded=True, retry_in=retry_in)


def reports(request: ExchangeRequest) -> bool:
    """Whether the worker reports something that must be written."""
    return bool(request.outcomes) or request.recover or request.stopped or request.draining
