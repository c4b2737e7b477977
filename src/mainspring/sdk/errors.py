"""Errors that only the SDK raises. The others are those of mainspring.domain.errors, read from the server's
response."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING

from mainspring.domain.errors import MainspringError
from mainspring.domain.retry import LONGEST_DELAY

if TYPE_CHECKING:
    from mainspring.wire.runs import RunView


class BadPayload(MainspringError):
    """The payload does not match the task's parameters. A retry would not help, so the run fails at once."""

    code = "bad_payload"


class RunFailed(MainspringError):
    """The run ended without success. `status` is FAILED, CANCELLED or SKIPPED. `run` is the run, if there was one."""

    code = "run_failed"

    def __init__(self, detail: str, *, status: str, run: RunView | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.run = run


class Retry(Exception):
    """Raised by a task to request a retry, whatever the job's retry rules are. max_attempts still applies.

    raise Retry("rate limited", after=30)     # retry after 30 seconds or later
    """

    def __init__(self, reason: str = "", *, after: float | timedelta | None = None) -> None:
        super().__init__(reason)
        self.after = None if after is None else in_seconds(after)


class GiveUp(Exception):
    """Raised by a task if a retry would not help. The run fails at once and becomes a dead letter."""


class Snooze(BaseException):
    """Raised by `ctx.snooze`: the run comes back after `seconds`, without using an attempt.

    It is no Exception, like asyncio.CancelledError, so that `except Exception` in a task does not catch it. Code that
    catches BaseException must raise it again.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


def snooze_in(error: BaseException) -> Snooze | None:
    """The Snooze that a task has raised: the error itself, or the only kind of error in a group, as a TaskGroup raises
    it."""
    while isinstance(error, BaseExceptionGroup):
        if error.split(Snooze)[1] is not None:
            return None
        error = error.exceptions[0]
    return error if isinstance(error, Snooze) else None


def in_seconds(delay: float | timedelta) -> float:
    """The delay as a float from 0 to the longest delay. Accepts any kind of number, such as numpy's or a Decimal."""
    try:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
    except OverflowError:
        seconds = math.inf
    if math.isnan(seconds):
        raise ValueError("after must be a number of seconds, not nan")
    return min(max(0.0, seconds), LONGEST_DELAY)
