"""Errors that only the SDK raises. All others are those of mainspring.domain.errors, read from the server's answer."""

from __future__ import annotations

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
