"""Errors that only the SDK raises. All others are those of mainspring.domain.errors, read from the server's answer."""

from __future__ import annotations

import math
from datetime import timedelta

from mainspring.domain.errors import MainspringError
from mainspring.domain.retry import LONGEST_DELAY
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
        self.after = None if after is None else in_seconds(after)


class GiveUp(Exception):
    """Raised by a task for which trying again would not help: the run fails at once and becomes a dead letter."""


def in_seconds(delay: float | timedelta) -> float:
    """A plain float, whatever kind of number it is (numpy's, a Decimal): from 0 up to the longest delay there is."""
    try:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
    except OverflowError:
        seconds = math.inf
    if math.isnan(seconds):
        raise ValueError("after: a number of seconds is needed, not nan")
    return min(max(0.0, seconds), LONGEST_DELAY)
