"""What a task may know about the run it is in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol


def rfc3339(moment: datetime) -> str:
    """`moment` (aware) in UTC with a Z, as it stands in idempotency keys and in a shell run's environment."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def idempotency_key(job_id: str, scheduled_for: datetime) -> str:
    """The same for every attempt of one fire, and for no other fire."""
    return f"{job_id}/{rfc3339(scheduled_for)}"


class Channel(Protocol):
    """Where a context's words go: the worker that runs the task, or a test. May be called from any thread."""

    def progress(self, fraction: float | None, message: str | None) -> None:
        """Keep the newest; it is shown while the run goes on."""

    def log(self, text: str) -> None:
        """Append to the attempt's log."""


@dataclass(slots=True, eq=False)
class Context:
    """Given to a task that has a parameter named `ctx` or annotated `Context`."""

    job_id: str
    run_id: str
    attempt: int
    scheduled_for: datetime
    task: str
    name: str | None = None
    _cancel: threading.Event = field(default_factory=threading.Event, repr=False)
    _channel: Channel | None = field(default=None, repr=False)
    _cleanups: list[Callable[[], object]] = field(default_factory=list, repr=False)

    @property
    def idempotency_key(self) -> str:
        """Job and fire time: hand it to services that de-duplicate, every attempt of this fire has the same one."""
        return idempotency_key(self.job_id, self.scheduled_for)

    @property
    def cancelled(self) -> bool:
        """True once somebody asked for this run to stop. A thread task looks at it between two steps; an async task
        is cancelled at its next await besides."""
        return self._cancel.is_set()

    def wait_for_cancel(self, timeout: float | None = None) -> bool:
        """Pause a thread task for `timeout` seconds, or less when the run is to stop; the answer is `cancelled`."""
        return self._cancel.wait(timeout)

    def progress(self, fraction: float | None = None, message: str | None = None) -> None:
        """Say how far this run has come: `ctx.progress(0.4, "page 40 of 100")`. Cheap enough for every step."""
        if fraction is not None:
            fraction = float(fraction)  # it may be numpy's, or a Decimal, which the way to the server does not take
            if not 0.0 <= fraction <= 1.0:
                raise ValueError(f"progress is a share from 0 to 1, not {fraction}")
        if self._channel is not None:
            self._channel.progress(fraction, None if message is None else str(message))

    def log(self, *words: object, sep: str = " ", end: str = "\n") -> None:
        """`print` into the run's log: `ctx.log("charged", account)`. Shown by `mainspring logs`."""
        if self._channel is not None:
            self._channel.log(sep.join(map(str, words)) + end)

    def add_cleanup(self, function: Callable[..., object], /, *args: Any, **kwargs: Any) -> None:
        """Call `function` when this attempt ends: success, failure, cancel or timeout; the last one added first. An
        async task's may be a coroutine function."""
        self._cleanups.append(partial(function, *args, **kwargs))

    def take_cleanups(self) -> list[Callable[[], object]]:
        """The clean-up calls, in the order in which they are to be made; each is given out once. For the worker."""
        taken, self._cleanups[:] = self._cleanups[::-1], []
        return taken

    def cancel(self) -> None:
        """Raise the flag. The worker does this."""
        self._cancel.set()
