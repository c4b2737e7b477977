"""The http executor, imported when the first http run arrives. Most workers never get one."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock
from mainspring.kinds.http import KIND
from mainspring.kinds.http.address_guard import AddressGuard
from mainspring.worker.execution.attempt import Attempt, AttemptEnding, Execute, OpenLog
from mainspring.worker.executors.setting import ExecutorSetting

if TYPE_CHECKING:
    from mainspring.kinds.http.caller import HttpExecutor


def build(setting: ExecutorSetting) -> HttpOnDemand:
    guard = AddressGuard.from_text(setting.options.get("http_allow"))
    return HttpOnDemand(guard, open_log=setting.open_log, clock=setting.clock)


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
        return {KIND.name: self._execute}

    def kill_all(self) -> None:
        if self._executor is not None:
            self._executor.kill_all()

    def _execute(self, attempt: Attempt) -> Coroutine[Any, Any, AttemptEnding]:
        if self._executor is None:
            from mainspring.kinds.http.caller import HttpExecutor

            self._executor = HttpExecutor(self._guard, open_log=self._open_log, clock=self._clock)
        return self._executor.execute(attempt)
