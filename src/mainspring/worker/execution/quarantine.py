"""The quarantine keeps a run that may end its worker apart from the other runs of the worker.

A run that was lost with its worker may have ended that worker itself. There are two kinds.

- It would run in the worker's process again: it waits here until the worker holds nothing else, and is alone until it
  ends.
- It has processes of its own, and the process of its last worker ended by itself (`alone` in its order): it waits for
  the others for 10 s at most, and is alone for its first 30 s. So it cannot keep a worker from other work for long.

Meanwhile the worker takes no runs, and hands back those that have not started. So if the worker ends again, no other
run is lost with it, and the server knows which run it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from mainspring.worker.execution.attempt import Attempt

MOST_WAIT = 10.0
ALONE_FOR = 30.0


class Quarantine:
    """`shares_process` says whether runs of a task share the worker's process, `has_processes` whether they have
    processes of their own. `now` is a monotonic clock."""

    def __init__(
        self, shares_process: Callable[[str], bool], has_processes: Callable[[str], bool], now: Callable[[], float]
    ) -> None:
        self._shares_process = shares_process
        self._has_processes = has_processes
        self._now = now
        self._lone: Attempt | None = None
        self._may_start = False
        self._until = math.inf  # it waits, and then is alone, until this time

    @property
    def waiting(self) -> Attempt | None:
        """The run that waits for the end of the others."""
        return None if self._may_start or not self.wanted else self._lone

    @property
    def wanted(self) -> bool:
        """A run waits here or runs alone. The worker takes no others."""
        if self._lone is None or self._lone.reported:
            return False
        return not self._may_start or self._now() < self._until

    @property
    def careful(self) -> bool:
        """A lone run has ended, and more of them may follow: it is not worth to ask for several runs."""
        return self._lone is not None and not self.wanted

    @property
    def bounded(self) -> bool:
        """There is a run here that waits, or is alone, for a certain time only."""
        return self._lone is not None and self._until != math.inf

    @property
    def overdue(self) -> bool:
        """The others have not ended in time: the run starts beside them."""
        return self.waiting is not None and self._now() >= self._until

    def set_apart(self, attempt: Attempt) -> bool:
        """True if the attempt must not start yet. It waits here, unless another one does."""
        if attempt is self._lone and self._may_start:
            return False
        task = attempt.order.task
        shares = self._shares_process(task)
        if not shares and not (attempt.order.alone and self._has_processes(task)):
            return False
        if not self.wanted:
            self._lone, self._may_start = attempt, False
            self._until = math.inf if shares else self._now() + MOST_WAIT
        return True

    def release(self) -> Attempt:
        """The worker holds nothing else, or the run has waited for too long: it may start."""
        assert self._lone is not None
        if self.bounded and not self.overdue:
            self._until = self._now() + ALONE_FOR
        self._may_start = True
        return self._lone

    def over(self) -> None:
        """No run waits here any more."""
        self._lone, self._may_start, self._until = None, False, math.inf
