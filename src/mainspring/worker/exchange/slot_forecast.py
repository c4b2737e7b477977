"""Which slots are about to become free: tasks that always take about as long are asked for in time. Pure."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from mainspring.worker.execution.attempt import Attempt

AHEAD = 0.025
_MOST_AHEAD = 0.1
_TOGETHER = 0.01  # who ends so soon after the first is asked for with it
_LEARN = 0.2
_ENOUGH = 8
_MOST_SLOTS = 2000
_MOST_TASKS = 1000
_NEVER = float("inf")


class _Habit(msgspec.Struct):
    """How long a task takes: mean and deviation, the newest counting most."""

    mean: float
    deviation: float = 0.0
    seen: int = 1


class SlotForecast:
    """200 runs of a second each that end together leave their slots empty for the 10 to 20 ms of an exchange: 1 to 2 %
    of their time. When runs of a task take about as long as is usual for it, the next ones are fetched 25 ms before a
    slot becomes free, or earlier when exchanges take longer than that. A run that is overdue counts for nothing, so
    little waits here that could run elsewhere.
    """

    def __init__(self) -> None:
        self.ahead = AHEAD
        self._round_trip = 0.0
        self._habits: dict[str, _Habit] = {}
        self._steady: dict[str, float] = {}

    def heard(self, round_trip: float) -> None:
        """An exchange that did not wait took so long."""
        self._round_trip += _LEARN * (round_trip - self._round_trip)
        self.ahead = min(_MOST_AHEAD, max(AHEAD, 2.5 * self._round_trip))

    def ended(self, task: str, seconds: float) -> None:
        habit = self._habits.get(task)
        if habit is None:
            if len(self._habits) < _MOST_TASKS:
                self._habits[task] = _Habit(seconds)
            return
        error = seconds - habit.mean
        habit.seen += 1
        habit.mean += _LEARN * error
        habit.deviation += _LEARN * (abs(error) - habit.deviation)
        if habit.seen >= _ENOUGH and habit.deviation <= AHEAD / 2:
            self._steady[task] = habit.mean
        else:
            self._steady.pop(task, None)

    def soon(self, active: Collection[Attempt], now: float) -> int:
        """How many slots will be free in a moment."""
        return sum(end <= now + self.ahead + _TOGETHER for end in self._ends(active, now))

    def ask_at(self, active: Collection[Attempt], now: float, covered: int) -> float:
        """When to ask for more, if the first `covered` slots that become free are taken care of."""
        ends = self._ends(active, now)
        return sorted(ends)[covered] - self.ahead if covered < len(ends) else _NEVER

    def _ends(self, active: Collection[Attempt], now: float) -> list[float]:
        steady = self._steady
        if not steady or len(active) > _MOST_SLOTS:
            return []
        ends = [attempt.started + usual for attempt in active if (usual := steady.get(attempt.order.task)) is not None]
        return [end for end in ends if end > now - self.ahead]
