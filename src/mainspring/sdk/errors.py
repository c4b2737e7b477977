"""Errors that only the SDK raises. All others are those of mainspring.domain.errors, read from the server's answer."""

from __future__ import annotations

from datetime import timedelta

from mainspring.domain.errors import MainspringError
from mainspring.wire.runs import RunView


class BadPayload(MainspringError):
    """The payload does not fit the task's parameters; trying again would not help, so the run fails at once."""

    code = "bad_payload"


class RunFailed(MainspringError):
    """The run ended without success. `status` is FAILED, CANCELLED or SKIPPED; `run` is the run, if there was one."""

    code = "run_failed"

    def __init__(self, detail: str, *, status: str, run: RunView | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.run = run


class Retry(Exception):
    """Raised by a task that wants to be tried again, whatever the job's retry rules say; tries left still count.

    raise Retry("rate limited", after=30)     # not before 30 seconds have passed
    """

    def __init__(self, reason: str = "", *, after: float | timedelta | None = None) -> None:
        super().__init__(reason)
        self.after = after.total_seconds() if isinstance(after, timedelta) else after


class GiveUp(Exception):
    """Raised by a task for which trying again would not help: the run fails at once and becomes a dead letter."""
