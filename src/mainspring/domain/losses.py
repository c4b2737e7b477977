"""Decides what follows an attempt that was lost with its worker. A loss uses no attempt; it has a count of its own."""

from __future__ import annotations

from collections.abc import Callable

from mainspring.domain.retry import Verdict

DEFAULT_MAX_LOSSES = 3
SHORTEST_DELAY = 1.0
LONGEST_DELAY = 30.0


def after_loss(losses: int, max_losses: int | None, random: Callable[[], float]) -> Verdict:
    """What follows the loss number `losses` of a run. The first one is retried at once. Later ones wait for a random
    time: a run that kills its worker must not kill the next one at once. `random` returns numbers in [0, 1)."""
    most = DEFAULT_MAX_LOSSES if max_losses is None else max_losses
    if losses > most:
        times = "once" if losses == 1 else f"{losses} times"
        return Verdict(
            None,
            f"lost {times}, max_losses is {most}: its worker ended or fell silent each time; "
            "see whether the task ends its process or uses up the memory",
        )
    if losses <= 1:
        return Verdict(0.0)
    return Verdict(SHORTEST_DELAY + (LONGEST_DELAY - SHORTEST_DELAY) * random())
