"""What follows for workflow runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self
from uuid import UUID

import msgspec

from mainspring.domain.workflows.flow import FlowState
from mainspring.operations.lifecycle.effects import Effects, Part
from mainspring.operations.lifecycle.events import ContainerStopped
from mainspring.operations.signals import FlowNews, Signals
from mainspring.store import workflows
from mainspring.store.pool import Connection


class FlowEffects(Part):
    """marked_joins: the joins that have marks. maps: the joins of members that have counted some ends. fanouts: the
    mapped steps that are ready. stopped: the workflow runs that may have steps left to cancel."""

    marked_joins: set[int] = msgspec.field(default_factory=set)
    maps: set[int] = msgspec.field(default_factory=set)
    fanouts: set[UUID] = msgspec.field(default_factory=set)
    stopped: set[UUID] = msgspec.field(default_factory=set)

    def merge(self, other: Self, /) -> None:
        self.marked_joins |= other.marked_joins
        self.maps |= other.maps
        self.fanouts |= other.fanouts
        self.stopped |= other.stopped

    def publish(self, signals: Signals, /) -> None:
        if self.marked_joins or self.maps or self.fanouts or self.stopped:
            signals.flows.publish(FlowNews(self.marked_joins, self.maps, self.fanouts, self.stopped))


class StoppedFlows:
    """Workflow runs have to end: that is stored, and their steps are cancelled after the commit."""

    def wants(self, _: ContainerStopped, /) -> bool:
        return True

    async def handle(self, connection: Connection, events: Sequence[ContainerStopped], effects: Effects, /) -> None:
        for state, timed_out in ((FlowState.CANCELLING, False), (FlowState.TIMING_OUT, True)):
            if flows := [(one.run_id, one.fence, one.reason) for one in events if one.timed_out is timed_out]:
                effects.of(FlowEffects).stopped.update(await workflows.stop(connection, flows, state))
