"""Reports to the server which runs have started. Only runs that last longer than a moment are reported, each once. Runs
with a rate are reported at once: until then they count as unstarted, and too many of these hold up the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mainspring.wire.exchange import Start
from mainspring.worker.execution.attempt import Attempt, Key

MOMENT = 0.25
_MOST_AT_A_TIME = 10_000


class StartReports:
    def __init__(self) -> None:
        self._fresh: dict[Key, Attempt] = {}
        self._server: str | None = None

    def __len__(self) -> int:
        return len(self._fresh)

    def collect(self, active: Iterable[Attempt], now: float, server: str) -> bool:
        """Find the active runs to report. Return whether there are new ones. After a change of the server all are
        reported again, because the other one may not have taken them."""
        if server != self._server:
            self._server = server
            for attempt in active:
                attempt.start_told = False
        before = len(self._fresh)
        for attempt in active:
            lasts = attempt.order.paced or now - attempt.started >= MOMENT
            if lasts and not attempt.start_told and not attempt.reported:
                attempt.start_told = True
                self._fresh[attempt.key] = attempt
        return len(self._fresh) > before

    def take(self, now: float) -> list[Start]:
        """Return the starts that the next exchange reports."""
        keys = list(self._fresh)[:_MOST_AT_A_TIME]
        taken = [self._fresh.pop(key) for key in keys]
        return [
            (attempt.order.run_id, attempt.order.fence, round((now - attempt.started) * 1000.0, 3))
            for attempt in taken
            if not attempt.reported
        ]

    def put_back(self, starts: Iterable[Start], held: Mapping[Key, Attempt]) -> None:
        """Report these again, because the exchange with them failed."""
        for run_id, fence, _ in starts:
            attempt = held.get((run_id.int, fence))
            if attempt is not None and not attempt.reported:
                self._fresh[attempt.key] = attempt

    def forget(self, attempt: Attempt) -> None:
        """Forget an attempt that has ended."""
        self._fresh.pop(attempt.key, None)
