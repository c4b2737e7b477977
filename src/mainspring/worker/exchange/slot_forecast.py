"""Predicts which slots are about to become free, so that the next runs are fetched in time. No I/O and no clock."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from mainspring.worker.execution.attempt import Attempt

AHEAD = 0.025
_MOST_AHEAD = 0.1
_TOGETHER = 0.01  # slots that become free this soon after the first are filled by the same exchange
_LEARN = 0.2
_ENOUGH = 8
_MOST_SLOTS = 2000
_MOST_TASKS = 1000
_NEVER = float("inf")


class _Duration(msgspec.Struct):
    """How long a task takes: moving mean and deviation."""

    mean: float
    deviation: float = 0.0
    seen: int = 1


class SlotForecast:
    """200 runs of one second that end together leave their slots empty for an exchange of 10 to 20 ms: 1 to 2 % of the
    time. For tasks whose duration is steady, the next runs are fetched 25 ms before a slot becomes free, or earlier if
    exchanges take longer than that. A run that is overdue is not counted, so that few runs wait here that could run
    elsewhere.
    """

    def __init__(self) -> None:
        self.ahead = AHEAD
        self._round_trip = 0.0
        self._durations: dict[str, _Duration] = {}
        self._steady: dict[str, float] = {}

    def heard(self, round_trip: float) -> None:
        """An exchange that was no long poll took this many seconds."""
        self._round_trip += _LEARN * (round_trip - self._round_trip)
        self.ahead = min(_MOST_AHEAD, max(AHEAD, 2.5 * self._round_trip))

    def ended(self, task: str, seconds: float) -> None:
        duration = self._durations.get(task)
        if duration is None:
            if len(self._durations) < _MOST_TASKS:
                self._durations[task] = _Duration(seconds)
            return
        error = seconds - duration.mean
        duration.seen += 1
        duration.mean += _LEARN * error
        duration.deviation += _LEARN * (abs(error) - duration.deviation)
        if duration.seen >= _ENOUGH and duration.deviation <= AHEAD / 2:
            self._steady[task] = duration.mean
        else:
            self._steady.pop(task, None)

    def soon(self, active: Collection[Attempt], now: float) -> int:
        """How many slots are about to become free."""
        return sum(end <= now + self.ahead + _TOGETHER for end in self._ends(active, now))

    def ask_at(self, active: Collection[Attempt], now: float, covered: int) -> float:
        """When to ask for more runs, if there are already runs for the first `covered` slots that become free."""
        ends = self._ends(active, now)
        return sorted(ends)[covered] - self.ahead if covered < len(ends) else _NEVER

    def _ends(self, active: Collection[Attempt], now: float) -> list[float]:
        steady = self._steady
        if not steady or len(active) > _MOST_SLOTS:
            return []
        ends = [attempt.started + usual for attempt in active if (usual := steady.get(attempt.order.task)) is not None]
        return [end for end in ends if end > now - self.ahead]
