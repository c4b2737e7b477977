"""The http executor, imported when the first http run arrives. Most workers never get one."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from mainspring.domain.job import HTTP_TASK
from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock
from mainspring.worker.execution.attempt import Attempt, Ending, Execute, OpenLog
from mainspring.worker.executors.http.address_guard import AddressGuard

if TYPE_CHECKING:
    from mainspring.worker.executors.http.executor import HttpExecutor


class HttpOnDemand:
    """Saves a worker the import of httpx, 0.1 s of CPU time, until the first http run."""

    killable = True
    isolates = True
    has_processes = False

    def __init__(
        self, guard: AddressGuard, *, open_log: OpenLog | None = None, clock: LoopClock = SYSTEM_CLOCK
    ) -> None:
        self._clock = clock
        self._guard = guard
        self._open_log = open_log
        self._executor: HttpExecutor | None = None

    def offers(self) -> dict[str, Execute]:
        return {HTTP_TASK: self._execute}

    def kill_all(self) -> None:
        if self._executor is not None:
            self._executor.kill_all()

    def _execute(self, attempt: Attempt) -> Coroutine[Any, Any, Ending]:
        if self._executor is None:
            from mainspring.worker.executors.http.executor import HttpExecutor

            self._executor = HttpExecutor(self._guard, open_log=self._open_log, clock=self._clock)
        return self._executor.execute(attempt)
