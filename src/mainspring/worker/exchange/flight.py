"""One exchange in flight, and what its answer brought."""

from __future__ import annotations

import msgspec

from mainspring.wire.exchange import ExchangeRequest
from mainspring.worker.exchange.queue_weights import NOTHING, SlotDivision
from mainspring.worker.exchange.rejected_outcomes import OutcomeBatch
from mainspring.worker.execution.attempt import Attempt


class Flight(msgspec.Struct, eq=False):
    """An exchange that was sent and is not answered yet.

    failures: how many exchanges were lost before it was sent. division: how it divides what it asks for among the
    queues. trial: it carries a batch of RejectedOutcomes.
    """

    request: ExchangeRequest
    sent: float
    failures: int
    division: SlotDivision = NOTHING
    trial: bool = False

    @property
    def carries(self) -> OutcomeBatch:
        return OutcomeBatch(self.request.outcomes, self.request.progress)

    @property
    def waits(self) -> bool:
        """Whether the exchange is a long poll."""
        return self.request.wait_ms > 0

    def ask_for_nothing(self) -> None:
        """Make the exchange ask for no runs."""
        self.request.free, self.request.shares, self.request.room = 0, [], {}
        self.division = NOTHING

    def may_bring(self, task: str) -> int:
        """How many runs of a task it asks for at most."""
        request = self.request
        return min(request.room.get(task, request.free), request.free)


class Landing(msgspec.Struct):
    """What an answer brought that is new."""

    taken: list[Attempt]
    stop: list[Attempt]
