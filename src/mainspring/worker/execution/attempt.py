"""One attempt of a run in a worker, how it may end, and the interface of executors."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from mainspring.domain.durations import format_duration
from mainspring.kernel.texts import shorten_text, storable_text
from mainspring.wire.exchange import OutcomeStatus, RunOrder
from mainspring.wire.execution import Cause
from mainspring.worker.execution.attempt_usage import AttemptUsage
from mainspring.worker.execution.interruption import Interruption

ERROR_BYTES = 8 * 1024

Key = tuple[int, int]


class Stop(StrEnum):
    """Why a running attempt is asked to end."""

    CANCEL = "cancel"
    TIMEOUT = "timeout"
    DRAIN = "drain"
    CUT_OFF = "cut off"
    HAND_BACK = "hand back"  # of an ordinary run whose lease has ended


class StopSupport(StrEnum):
    """What stops a running attempt, besides the call of `on_stop`."""

    CANCELLATION = "cancellation"  # its asyncio task is cancelled
    REQUEST = "request"  # nothing else is needed: its executor ends it for certain
    NOTHING = "nothing"  # a thread may ignore the request, and also `kill`, which follows after the grace


class AttemptEnding(msgspec.Struct, frozen=True):
    """How an attempt ended, before it is encoded as an Outcome."""

    status: OutcomeStatus = "SUCCESS"
    error: str | None = None
    retry: bool = True
    result: msgspec.Raw | None = None
    cause: Cause | None = None
    retry_after: float | None = None
    snooze: float | None = None
    callback: bool = False


SUCCEEDED = AttemptEnding()
RETURNED = AttemptEnding("RETURNED")
CANCELLED = AttemptEnding("CANCELLED")
# A started run that goes back counts as lost. The error tells it from an unstarted one.
LEASE_ENDED = AttemptEnding("RETURNED", "stopped: the lease of its worker ended")


class LogSink(Protocol):
    """Takes the output of one attempt. The first byte opens it; an attempt that prints nothing has no sink.

    An executor that has a sink awaits `finish` before its attempt ends, so that the log of an ended attempt is
    complete.
    """

    @property
    def full(self) -> bool:
        """Too much output waits to be shipped. A writer that can wait should pause until `room` returns."""

    async def room(self) -> None:
        """Returns when more output can be written."""

    def write(self, data: bytes) -> None:
        """Append; never blocks and never fails. Output beyond the cap is dropped, and the log is marked as
        truncated."""

    async def finish(self) -> None:
        """Ship the rest; returns when it is stored, rejected, or given up."""


class HiddenStream(Protocol):
    """Hides secrets in bytes that come in pieces."""

    def feed(self, data: bytes) -> bytes: ...

    def end(self) -> bytes: ...


class OutputRedactor(Protocol):
    """Hides the secrets of a run (redaction.py)."""

    def data(self, data: bytes, *, cut: bool = False) -> bytes: ...

    def text(self, text: str) -> str: ...

    def ending(self, ending: AttemptEnding) -> AttemptEnding: ...

    def stream(self) -> HiddenStream: ...


class Progressed(msgspec.Struct, frozen=True):
    fraction: float | None
    message: str | None


class Attempt(msgspec.Struct, eq=False):
    """A run that this worker holds, from its arrival until its outcome is acknowledged.

    on_stop: asks its executor to stop it. kill: ends it at once, where that is possible. stops_by: what else is needed
    to stop it. interruption: only for an attempt that runs in a thread. progress_sent: how many progress reports were
    sent. start_told: its start is reported to the server. fenced: the run belongs to another worker; the attempt is
    not reported, however it ends. start_by: it is handed back if it starts later. usage: what its processes use; None
    if it has none. redactor: hides the secrets of the run; None if it has none.
    """

    order: RunOrder
    key: Key
    received: float
    started: float = 0.0
    deadline: float = 0.0
    stopping: Stop | None = None
    on_stop: Callable[[], None] | None = None
    kill: Callable[[], None] | None = None
    stops_by: StopSupport = StopSupport.CANCELLATION
    carrier: asyncio.Task[None] | None = None
    reported: bool = False
    fenced: bool = False
    log: LogSink | None = None
    progress: Progressed | None = None
    progress_sent: int = 0
    interruption: Interruption | None = None
    start_told: bool = False
    start_by: float = math.inf
    usage: AttemptUsage | None = None
    redactor: OutputRedactor | None = None


OpenLog = Callable[[Attempt], LogSink]
"""Returns the sink of an attempt. Opens it and sets `attempt.log` if needed."""

NoteProgress = Callable[[Attempt, float | None, str | None], None]
"""Keeps the progress of an attempt for the next exchange. May be called from any thread."""

Execute = Callable[[Attempt], Coroutine[Any, Any, AttemptEnding]]
Report = Callable[[Attempt, AttemptEnding], None]


class Executor(Protocol):
    """Runs attempts of one kind."""

    killable: bool
    """True if `kill_all` ends attempts for certain; False if only the end of the process does."""

    has_processes: bool
    """True if every attempt has processes of its own."""

    @property
    def isolates(self) -> bool:
        """True if an attempt of a run that was lost before cannot end the worker's process."""

    def offers(self) -> dict[str, Execute]:
        """The tasks it runs. `Execute` returns when the attempt is gone, also after a request to stop."""

    def kill_all(self) -> None:
        """Kill all attempts that can be killed, without a grace."""


def key_of(order: RunOrder) -> Key:
    # An integer, because hashing a UUID calls Python code: insert and delete take 0.3 µs instead of 0.7 µs.
    return (order.run_id.int, order.fence)


def grace_of(order: RunOrder, usual: float) -> float:
    """Seconds between the request to stop and the kill."""
    return usual if order.setup is None or order.setup.kill_grace is None else order.setup.kill_grace


def failed(
    error: str, *, retry: bool = True, cause: Cause | None = None, retry_after: float | None = None
) -> AttemptEnding:
    return AttemptEnding("FAILED", error_text(error), retry, cause=cause, retry_after=retry_after)


def ending_after_stop(attempt: Attempt, detail: str = "") -> AttemptEnding:
    """The ending of an attempt that was told to stop. It depends on the reason only, not on how the attempt reacted."""
    suffix = f": {detail}" if detail else ""
    match attempt.stopping:
        case Stop.TIMEOUT:
            return failed(f"timed out after {format_duration(attempt.order.timeout)}{suffix}")
        case Stop.DRAIN:
            return failed(f"worker stopped{suffix}")
        case Stop.CUT_OFF:
            return failed(f"stopped: cut off from the database{suffix}")
        case Stop.HAND_BACK:
            return LEASE_ENDED
        case _:
            return CANCELLED


def error_text(text: str) -> str:
    """An error as JSON and PostgreSQL take it, with at most ERROR_BYTES bytes; the end is kept."""
    return shorten_text(storable_text(text), ERROR_BYTES)
