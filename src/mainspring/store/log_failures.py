"""A failure of the log store: clients learn that there is one, and the server's log says why."""

from __future__ import annotations

import time

from mainspring.domain.errors import Unavailable
from mainspring.kernel.logs import get_logger

log = get_logger("log_store")

_TELL_EVERY = 10.0


class LogFailures:
    def __init__(self) -> None:
        self._told_at = float("-inf")

    def unavailable(self, error: Exception) -> Unavailable:
        """The cause is only logged here, because it contains paths, buckets and addresses. It is logged at intervals,
        because every client repeats its request."""
        now = time.monotonic()
        if now - self._told_at >= _TELL_EVERY:
            self._told_at = now
            log.warning("the log store fails", error=first_line(error))
        return Unavailable(
            "the log store fails", code="log_store_down", hint="try again shortly; the server's log says why"
        )


def first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or repr(error)
