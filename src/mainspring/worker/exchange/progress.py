"""Progress of the running attempts, and what their processes use: the newest report of each, sent at most twice a
second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

from mainspring.wire.exchange import Progress
from mainspring.worker.execution.attempt import Attempt, Key, Progressed

EVERY = 0.5
_LONGEST_PAUSE = 60.0
_MOST_TEXT = 1000
_MOST_AT_A_TIME = 1000
_NEVER = float("inf")
_NOTHING = Progressed(None, None)


class ProgressReports:
    """Everything but `note` runs on the worker's loop."""

    def __init__(self) -> None:
        self._notify: Callable[[], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fresh: dict[Key, Attempt] = {}
        self._beside: dict[Key, Attempt] = {}  # with news of their processes, which wait for the next exchange
        self._not_before: dict[Key, float] = {}
        self._refusals: dict[Key, int] = {}

    def open(self, notify: Callable[[], None]) -> None:
        """From now on `notify` is called on this loop when there is a new report."""
        self._notify = notify
        self._loop = asyncio.get_running_loop()

    def note(self, attempt: Attempt, fraction: float | None, message: str | None) -> None:
        """Keep the newest report. A fraction of None keeps the previous one. May be called from any thread, and
        often."""
        before = attempt.progress
        if message is not None and attempt.redactor is not None:
            message = attempt.redactor.text(message)
        if fraction is None or not 0.0 <= fraction <= 1.0:
            fraction = None if before is None else before.fraction
        attempt.progress = Progressed(fraction, None if message is None else _clean(message))
        # Set after the report is stored and cleared before it is read, so that the newest is never lost.
        if attempt.key not in self._fresh:
            self._fresh[attempt.key] = attempt
            if self._loop is not None and self._notify is not None:
                with suppress(RuntimeError):  # the loop is closed: the process ends
                    self._loop.call_soon_threadsafe(self._notify)

    def sample(self, active: Iterable[Attempt], now: float, *, report: bool) -> None:
        """Measure the processes of the attempts that last. `report`: the earlier samples go along with the
        next exchange. It is no reason for one."""
        for attempt in active:
            if (usage := attempt.usage) is not None and not attempt.reported:
                if usage.has_news() and report:
                    self._beside[attempt.key] = attempt
                usage.ask(now - attempt.started)

    @property
    def waiting(self) -> bool:
        """Whether there is anything for an exchange that is sent anyway."""
        return bool(self._fresh or self._beside)

    def due(self) -> float:
        """When an exchange may be sent for the next report; infinity if there is none."""
        if not self._fresh:
            return _NEVER
        return min(self._not_before.get(key, 0.0) for key in list(self._fresh))

    def take(self, now: float) -> list[Progress]:
        """The reports to send now."""
        taken: list[Progress] = []
        for key, attempt in list((self._beside | self._fresh).items()):
            if len(taken) == _MOST_AT_A_TIME:
                break
            if attempt.reported or attempt.fenced:
                self.forget(attempt)
                continue
            if self._not_before.get(key, 0.0) > now:
                continue
            self._fresh.pop(key, None)
            self._beside.pop(key, None)
            self._not_before[key] = now + EVERY
            said, used = attempt.progress or _NOTHING, attempt.usage
            order = attempt.order
            attempt.progress_sent += 1
            usage = None if used is None else used.now()
            taken.append(Progress(order.run_id, order.fence, attempt.progress_sent, said.fraction, said.message, usage))
        return taken

    def put_back(self, lost: Iterable[Attempt]) -> None:
        """The exchange that carried the reports of these attempts was lost."""
        for attempt in lost:
            if not attempt.reported:
                queue = self._beside if attempt.progress is None else self._fresh
                queue[attempt.key] = attempt

    def refused(self, attempt: Attempt, now: float) -> None:
        """The server rejected a report of this attempt. The next may be valid, but each rejection costs a search."""
        if not attempt.reported:
            count = self._refusals[attempt.key] = self._refusals.get(attempt.key, 0) + 1
            self._not_before[attempt.key] = now + min(_LONGEST_PAUSE, EVERY * 2.0 ** min(count, 10))

    def forget(self, attempt: Attempt) -> None:
        """The attempt has ended."""
        self._fresh.pop(attempt.key, None)
        self._beside.pop(attempt.key, None)
        self._not_before.pop(attempt.key, None)
        self._refusals.pop(attempt.key, None)


def _clean(message: str) -> str:
    text = message[:_MOST_TEXT].replace("\x00", "\ufffd")
    return text.encode("utf-8", "replace").decode()
