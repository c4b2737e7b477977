"""Keeps a run that may end the worker's process apart from the other runs of the worker.

A run that was lost with its worker may have ended that worker itself. If it would run in the worker's process again, it
waits here until the worker holds nothing else. Meanwhile the worker takes no runs, and hands back those that have not
started. So if the process ends again, no other run is lost with it.
"""

from __future__ import annotations

from collections.abc import Callable

from mainspring.worker.execution.attempt import Attempt


class Solitude:
    """`shares_process` says whether runs of a task share the worker's process."""

    def __init__(self, shares_process: Callable[[str], bool]) -> None:
        self._shares_process = shares_process
        self._lone: Attempt | None = None
        self._may_start = False

    @property
    def waiting(self) -> Attempt | None:
        """The run that waits for the end of the others."""
        return None if self._may_start or not self.wanted else self._lone

    @property
    def wanted(self) -> bool:
        """A run waits here or runs alone. The worker takes no others."""
        return self._lone is not None and not self._lone.reported

    @property
    def careful(self) -> bool:
        """A lone run has ended, and more of them may follow: it is not worth to ask for several runs."""
        return self._lone is not None and self._lone.reported

    def set_apart(self, attempt: Attempt) -> bool:
        """True if the attempt must not start yet. It waits here, unless another one does."""
        if attempt is self._lone and self._may_start:
            return False
        if not self._shares_process(attempt.order.task):
            return False
        if not self.wanted:
            self._lone, self._may_start = attempt, False
        return True

    def release(self) -> Attempt:
        """The worker holds nothing else: the run may start."""
        assert self._lone is not None
        self._may_start = True
        return self._lone

    def over(self) -> None:
        """No run waits here any more."""
        self._lone, self._may_start = None, False
