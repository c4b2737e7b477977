"""The scaling signal: how far a queue is behind, and how many slots of workers it wants.

A queue wants the slots that its runs keep busy, and those that start what waits within a time. What keeps busy is what
runs now, or rate times duration if that is more: many short runs may all be between two looks.
"""

from __future__ import annotations

import math

import msgspec

WITHIN = 60.0  # seconds within which what waits is to start
LEAST_WITHIN, MOST_WITHIN = 1.0, 86_400.0
USUAL_DURATION = 1.0  # of runs of a queue in which none has ended for a day
_NOT_TAKEN = 5.0  # seconds after which free slots do not take what waits: other tasks, other labels
_NOISE = 1e-6


class QueueLoad(msgspec.Struct, frozen=True):
    """rate: runs that ended per second in the last minute. duration: how long they take on average, in seconds.
    oldest: how long the oldest one waits. free: slots of live workers of the queue that hold nothing. concurrency: how
    many may run at once. every: seconds between two starts, if a rate limits them."""

    waiting: int
    running: int
    rate: float
    duration: float | None
    oldest: float | None
    free: int
    concurrency: int | None = None
    every: float | None = None
    paused: bool = False


class Scale(msgspec.Struct, frozen=True):
    """backlog: seconds until what waits now has started, with the slots that there are."""

    backlog: float
    slots_wanted: int


def scale_of(load: QueueLoad, within: float = WITHIN) -> Scale:
    duration = USUAL_DURATION if load.duration is None else max(load.duration, 0.001)
    taken = load.oldest is None or load.oldest < _NOT_TAKEN
    behind = max(0, load.waiting - load.free) if taken else load.waiting
    slots = load.running + load.free
    backlog = behind / max(load.rate, max(slots, 1) / duration)
    return Scale(round(backlog, 3), _slots_wanted(load, duration, within))


def _slots_wanted(load: QueueLoad, duration: float, within: float) -> int:
    busy = max(float(load.running), load.rate * duration)
    if load.paused:
        return load.running
    wanted = min(busy + load.waiting * duration / within, max(busy, float(load.running + load.waiting)))
    if load.every is not None:
        wanted = min(wanted, max(float(load.running), duration / load.every))
    slots = math.ceil(wanted - _NOISE)
    if load.concurrency is not None:
        slots = min(slots, load.concurrency)
    return max(slots, load.running, 1 if load.waiting else 0)
