"""What follows for event streams: lists that change without a request, an exchange or a new run, which are counted
elsewhere (change_publisher.py). Only streams of this process hear of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Generic, Protocol, Self, TypeVar

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.operations.lifecycle.effects import Effects, Part
from mainspring.operations.signals import Signals
from mainspring.store.pool import Connection


class OfTenant(Protocol):
    @property
    def tenant_id(self) -> int: ...


E = TypeVar("E", bound=OfTenant)


class ListChanges(Part):
    """How often each list of a tenant has changed. Streams hear of it when the transaction has committed."""

    counts: Counter[tuple[int, str]] = msgspec.field(default_factory=Counter)

    def merge(self, other: Self, /) -> None:
        self.counts.update(other.counts)

    def publish(self, signals: Signals, /) -> None:
        for (tenant, name), count in self.counts.items():
            signals.lists_changed.publish(TenantId(tenant), (name,), count)


class ListsChange(Generic[E]):
    """Events of a kind change these lists of their tenant."""

    def __init__(self, *lists: str) -> None:
        self._lists = lists

    def wants(self, _: E, /) -> bool:
        return True

    async def handle(self, _: Connection, events: Sequence[E], effects: Effects, /) -> None:
        counts = effects.of(ListChanges).counts
        for event in events:
            for name in self._lists:
                counts[event.tenant_id, name] += 1
