"""Limits how many runs of a task are active at a time on one worker, and keeps the runs that wait."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping

from mainspring.worker.execution.attempt import Attempt


class TaskConcurrency:
    """A run whose task is at its limit is set aside, so that it does not block the runs behind it."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        self._limits = dict(limits)
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, deque[Attempt]] = {}

    @property
    def any(self) -> bool:
        return bool(self._limits)

    def __len__(self) -> int:
        """The number of runs that are set aside."""
        return sum(map(len, self._waiting.values()))

    def __iter__(self) -> Iterator[Attempt]:
        for waiting in self._waiting.values():
            yield from waiting

    def set_aside(self, attempt: Attempt) -> bool:
        """True if the task is at its limit; then the attempt waits here."""
        task = attempt.order.task
        limit = self._limits.get(task)
        if limit is None or self._running[task] < limit:
            return False
        self._waiting.setdefault(task, deque()).append(attempt)
        return True

    def started(self, task: str) -> None:
        self._running[task] += 1

    def ended(self, task: str) -> Attempt | None:
        """A run of the task has ended. Returns the attempt that may start in its place."""
        self._running[task] -= 1
        waiting = self._waiting.get(task)
        if waiting is None:
            return None
        following = waiting.popleft()
        if not waiting:
            del self._waiting[task]
        return following

    def release(self) -> list[Attempt]:
        """Remove and return all attempts that wait here."""
        released = list(self)
        self._waiting.clear()
        return released
