"""Decides what follows an attempt that was lost with its worker. A loss uses no attempt; it has a count of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mainspring.domain.retry import RetryVerdict

DEFAULT_MAX_LOSSES = 3
SHORTEST_DELAY = 1.0
LONGEST_DELAY = 30.0


@dataclass(frozen=True, slots=True)
class Death:
    """How the worker of a lost run died, as its parent process reports. The worker was not asked to stop, and it was
    not cut off from its servers.

    crashed: the worker's own process ended, so one of its runs may have ended it. Otherwise the process that was
    started was killed from outside. exit: how it ended, in words. alone: the worker held no other run."""

    crashed: bool
    exit: str
    alone: bool


def after_loss(
    losses: int, max_losses: int | None, random: Callable[[], float], death: Death | None = None
) -> RetryVerdict:
    """What follows the loss number `losses` of a run. The first one is retried at once. Later ones wait for a random
    time: a run that kills its worker must not kill the next one at once. A run that is lost again by the death of a
    worker on which it was alone is not tried again. `death` is None if the worker fell silent, was asked to stop, or
    was cut off, because that says nothing about the run. `random` returns numbers in [0, 1)."""
    most = DEFAULT_MAX_LOSSES if max_losses is None else max_losses
    if losses > most:
        times = "once" if losses == 1 else f"{losses} times"
        return RetryVerdict(
            None,
            f"lost {times}, max_losses is {most}: its worker ended or fell silent each time; "
            "see whether the task ends its process or uses up the memory",
        )
    if losses > 1 and death is not None and death.alone:
        return RetryVerdict(
            None,
            f"lost {losses} times, the last time while it was alone on its worker ({death.exit}); "
            "see whether the task ends its worker or uses up the machine",
        )
    if losses <= 1:
        return RetryVerdict(0.0)
    return RetryVerdict(SHORTEST_DELAY + (LONGEST_DELAY - SHORTEST_DELAY) * random())
