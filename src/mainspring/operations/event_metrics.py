"""Counts what happens besides runs, for alerts: missed fires, lost workers, breakers, pauses and backfills."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Generic, Self, TypeVar

import msgspec

from mainspring.kernel import metrics
from mainspring.operations.lifecycle.effects import Effects, Part
from mainspring.operations.lifecycle.events import FireMissed, QueuePaused
from mainspring.operations.signals import Signals
from mainspring.store.pool import Connection

E = TypeVar("E")


class EventCounts(Part):
    """How many there were of each name. They count when the transaction has committed."""

    counts: Counter[str] = msgspec.field(default_factory=Counter)

    def merge(self, other: Self, /) -> None:
        self.counts.update(other.counts)

    def publish(self, _: Signals, /) -> None:
        for name, count in self.counts.items():
            metrics.events.labels(name).inc(count)


class EventCounter(Generic[E]):
    """Counts events of one kind. name: the label of an event. size: how many it stands for."""

    def __init__(self, name: Callable[[E], str] | str, size: Callable[[E], int] = lambda _: 1) -> None:
        self._name = name
        self._size = size

    def wants(self, _: E, /) -> bool:
        return True

    async def handle(self, _: Connection, events: Sequence[E], effects: Effects, /) -> None:
        counts = effects.of(EventCounts).counts
        for event in events:
            counts[self._name if isinstance(self._name, str) else self._name(event)] += self._size(event)


def fires_of(event: FireMissed) -> int:
    return event.count


def pause_or_resume(event: QueuePaused) -> str:
    return "queue_paused" if event.paused else "queue_resumed"
