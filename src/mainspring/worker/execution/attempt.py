"""One run in a worker's hands, how it may end, and the seam that executors fill."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from mainspring.domain.durations import format_duration
from mainspring.wire.exchange import OutcomeStatus, RunOrder
from mainspring.wire.execution import Cause
from mainspring.worker.execution.interruption import Interruption

ERROR_BYTES = 8 * 1024

Key = tuple[int, int]


class Stop(StrEnum):
    """Why a running attempt is asked to end."""

    CANCEL = "cancel"
    TIMEOUT = "timeout"
    DRAIN = "drain"
    CUT_OFF = "cut off"


class StopSupport(StrEnum):
    """What makes a running attempt stop, besides `on_stop`."""

    CANCELLATION = "cancellation"  # the task that carries it is cancelled
    REQUEST = "request"  # nothing else is needed: its executor ends it for certain
    NOTHING = "nothing"  # a thread: the request may go unheard, and so may `kill`, which comes after its grace


class Ending(msgspec.Struct, frozen=True):
    """What became of an attempt, before it is put on the wire."""

    status: OutcomeStatus = "SUCCESS"
    error: str | None = None
    retry: bool = True
    result: msgspec.Raw | None = None
    cause: Cause | None = None
    retry_after: float | None = None


SUCCEEDED = Ending()
RETURNED = Ending("RETURNED")
CANCELLED = Ending("CANCELLED")


class LogSink(Protocol):
    """Where the output of one attempt goes. It is opened by the first byte: an attempt that prints nothing has none.

    An executor that got a sink awaits `finish` before its attempt ends, so that an ended attempt's log is whole.
    """

    @property
    def full(self) -> bool:
        """Enough is waiting to be shipped: whoever can should pause until `room` returns."""

    async def room(self) -> None:
        """Returns when more may be written."""

    def write(self, data: bytes) -> None:
        """Append; never blocks and never fails. What goes beyond the cap is dropped, and the log is marked."""

    async def finish(self) -> None:
        """Ship what is left; returns when it is stored, refused, or given up."""


class Progressed(msgspec.Struct, frozen=True):
    fraction: float | None
    message: str | None


class Attempt(msgspec.Struct, eq=False):
    """A run that was handed to us, from its receipt until its outcome is acknowledged.

    `on_stop` is how its executor is told that it is to stop; `kill` ends it at once, where that is possible.
    `interruption` is there for one that runs in a thread.
    `words_sent` counts the words of progress that were sent.
    `fenced` means that the server no longer takes it for ours: whatever becomes of it is not reported.
    """

    order: RunOrder
    key: Key
    received: float
    started: float = 0.0
    deadline: float = 0.0
    stopping: Stop | None = None
    on_stop: Callable[[], None] | None = None
    kill: Callable[[], None] | None = None
    heeds: StopSupport = StopSupport.CANCELLATION
    carrier: asyncio.Task[None] | None = None
    reported: bool = False
    fenced: bool = False
    log: LogSink | None = None
    progress: Progressed | None = None
    words_sent: int = 0
    interruption: Interruption | None = None


OpenLog = Callable[[Attempt], LogSink]
"""Gives the attempt's sink, opening it (and setting `attempt.log`) if need be. Call it on the worker's loop."""

NoteProgress = Callable[[Attempt, float | None, str | None], None]
"""Keeps how far an attempt has come, to be told with the next exchange. May be called from any thread."""

Execute = Callable[[Attempt], Coroutine[Any, Any, Ending]]
Report = Callable[[Attempt, Ending], None]


class Executor(Protocol):
    """Runs attempts of one kind."""

    killable: bool
    """True when `kill_all` ends attempts for certain; False when only the end of the process does."""

    def offers(self) -> dict[str, Execute]:
        """The tasks it runs. Each `Execute` returns when its attempt is gone, also after it was told to stop."""

    def kill_all(self) -> None:
        """End all that can be ended, at once and without manners."""


def key_of(order: RunOrder) -> Key:
    # The integer, because hashing a UUID calls back into Python: 0.3 µs for insert and delete against 0.7 µs.
    return (order.run_id.int, order.fence)


def grace_of(order: RunOrder, usual: float) -> float:
    """How long a run that is told to stop may take, before it is ended by force."""
    return usual if order.setup is None or order.setup.kill_grace is None else order.setup.kill_grace


def failed(error: str, *, retry: bool = True, cause: Cause | None = None, retry_after: float | None = None) -> Ending:
    return Ending("FAILED", clean_text(error), retry, cause=cause, retry_after=retry_after)


def ending_after_stop(attempt: Attempt, detail: str = "") -> Ending:
    """How an attempt ends that was told to stop: the reason decides, whatever it made of the request."""
    suffix = f": {detail}" if detail else ""
    match attempt.stopping:
        case Stop.TIMEOUT:
            return failed(f"timed out after {format_duration(attempt.order.timeout)}{suffix}")
        case Stop.DRAIN:
            return failed(f"worker stopped{suffix}")
        case Stop.CUT_OFF:
            return failed(f"stopped: cut off from the database{suffix}")
        case _:
            return CANCELLED


def clean_text(text: str) -> str:
    """Text that JSON and PostgreSQL take: no NUL, no lone surrogates, ERROR_BYTES at most with the end kept."""
    data = text.replace("\x00", "\ufffd").encode("utf-8", "replace")
    if len(data) > ERROR_BYTES:
        head, tail = data[: ERROR_BYTES // 4], data[-(ERROR_BYTES * 3 // 4 - 5) :]
        data = head + b" ... " + tail
    return data.decode("utf-8", "ignore")
