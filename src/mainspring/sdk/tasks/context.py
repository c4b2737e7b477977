"""The context of a task: information about its run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, Protocol, TypeVar
from uuid import UUID

from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import InvalidInput
from mainspring.domain.retry import DEFAULT_RETRY, LONGEST_DELAY
from mainspring.domain.run_key import idempotency_key
from mainspring.sdk.errors import Snooze
from mainspring.wire.fields import Duration

if TYPE_CHECKING:
    from mainspring.sdk.client.handle import AsyncHandle, Handle

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Channel(Protocol):
    """The receiver of progress and logs: the worker that runs the task, or a test. Thread-safe."""

    def progress(self, fraction: float | None, message: str | None) -> None:
        """Store the latest progress. It is shown while the run executes."""

    def log(self, text: str) -> None:
        """Append to the attempt's log."""


class KeyedWork(Protocol[P, R_co]):
    """A task with the options of a job, one of which is an idempotency key."""

    def submit(self, *args: P.args, **params: P.kwargs) -> Handle[R_co]:
        """Create the job."""

    async def submit_async(self, *args: P.args, **params: P.kwargs) -> AsyncHandle[R_co]:
        """Create the job from async code."""


class Work(Protocol[P, R_co]):
    """What a task can submit: a task, or a task with the options of a job."""

    def with_key(self, key: str) -> KeyedWork[P, R_co]:
        """Add an idempotency key, unless it has one."""


@dataclass(slots=True, eq=False)
class Context:
    """The run that a task executes. A task gets it if it has a parameter named `ctx` or annotated `Context`.

    `attempt` counts from 1. The attempt is the last one if it equals `max_attempts`. A snooze raises both by one, as
    the loss of an attempt with its worker does, and uses up no attempt. `snoozes` says how often the run was snoozed.
    `generation` counts the jobs with this `job_id`.
    """

    job_id: str
    run_id: str
    attempt: int
    scheduled_for: datetime
    task: str
    name: str | None = None
    max_attempts: int = DEFAULT_RETRY.max_attempts
    snoozes: int = 0
    _at_most_once: bool = field(default=False, repr=False)
    generation: int = 1
    _key: str | None = field(default=None, repr=False)
    _cancel: threading.Event = field(default_factory=threading.Event, repr=False)
    _channel: Channel | None = field(default=None, repr=False)
    _cleanups: list[Callable[[], object]] = field(default_factory=list, repr=False)
    _secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    _fence: int = field(default=0, repr=False)
    _submitted: Iterator[int] = field(default_factory=partial(count, 1), repr=False)

    @property
    def idempotency_key(self) -> str:
        """A key from job and fire time, for services that de-duplicate. It is the same for all attempts of this fire
        and for its replays. A run that repeats a success, or has another payload than the run that it repeats, has a
        key of its own. From the second generation of a job on, the generation is part of it."""
        return self._key or idempotency_key(self.job_id, self.scheduled_for, generation=self.generation)

    @property
    def traceparent(self) -> str:
        """The W3C trace context of this attempt, for calls of other services. The trace has the id of the run, so all
        attempts of the run belong to it. HTTP tasks send the same, and commands have it as TRACEPARENT."""
        from mainspring.wire.trace_context import traceparent

        return traceparent(UUID(self.run_id), self._fence or self.attempt)

    @property
    def cancelled(self) -> bool:
        """True when the run was asked to stop. A thread task should check it between its steps. An async task is also
        cancelled at its next await."""
        return self._cancel.is_set()

    def wait_for_cancel(self, timeout: float | None = None) -> bool:
        """Sleep in a thread task for `timeout` seconds, or until the run is asked to stop. Returns `cancelled`."""
        return self._cancel.wait(timeout)

    def progress(self, fraction: float | None = None, message: str | None = None) -> None:
        """Report the progress of this run: `ctx.progress(0.4, "page 40 of 100")`. It is cheap enough for every step."""
        if fraction is not None:
            fraction = float(fraction)  # it can be numpy's or a Decimal, which cannot be sent to the server
            if not 0.0 <= fraction <= 1.0:
                raise ValueError(f"progress must be a number from 0 to 1, not {fraction}")
        if self._channel is not None:
            self._channel.progress(fraction, None if message is None else str(message))

    def log(self, *words: object, sep: str = " ", end: str = "\n") -> None:
        """Print into the run's log: `ctx.log("charged", account)`. `mainspring run logs` shows it."""
        if self._channel is not None:
            self._channel.log(sep.join(map(str, words)) + end)

    def secret(self, name: str) -> str:
        """The value of a secret that the task declares: `@app.task(secrets=["db-password"])`. The worker hides it in
        the log, the result, the error and the progress of the run. Raises InvalidInput if the run does not have it."""
        try:
            return self._secrets[name]
        except KeyError:
            raise InvalidInput(
                f"ctx.secret: this run has no secret {name!r}", code="unknown_secret", field="secrets",
                hint=f'declare it: @app.task(secrets=["{name}"])',
            ) from None  # fmt: skip

    def snooze(self, delay: Duration) -> NoReturn:
        """End this attempt and come back after `delay`: "10m", a number of seconds or a timedelta. The run is SCHEDULED
        until then. It uses no attempt. `run_timeout` limits all attempts and snoozes together.

        It raises `Snooze`, which is no Exception, so that `except Exception` does not catch it. A job that is at most
        once never starts again, so InvalidInput is raised for its runs.
        """
        if self._at_most_once:
            raise InvalidInput(
                "ctx.snooze: this job is delivered at most once, and a snoozed run would start again",
                code="snooze_at_most_once",
                field="delivery",
                hint='use delivery="at_least_once", or submit another job with delay=',
            )
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        raise Snooze(parse_duration(seconds, "snooze", most=LONGEST_DELAY, zero_ok=False))

    def submit(self, work: Work[P, R], /, *args: P.args, **params: P.kwargs) -> Handle[R]:
        """Submit a job from inside a task: `ctx.submit(resize, image=path)`. Options of the job are given with
        `task.options(...)`. An attempt that is repeated submits nothing twice: the idempotency key is made of the run
        and the number of the call. So every attempt must submit the same jobs in the same order."""
        return self._keyed(work).submit(*args, **params)

    async def submit_async(self, work: Work[P, R], /, *args: P.args, **params: P.kwargs) -> AsyncHandle[R]:
        """Submit a job from inside an async task, once for all its attempts."""
        return await self._keyed(work).submit_async(*args, **params)

    def _keyed(self, work: Work[P, R]) -> KeyedWork[P, R]:
        return work.with_key(f"{self.run_id}/{next(self._submitted)}")

    def add_cleanup(self, function: Callable[..., object], /, *args: Any, **kwargs: Any) -> None:
        """Call `function` when this attempt ends with success, failure, cancellation or timeout. Functions are called
        in reverse order. In an async task it can be a coroutine function."""
        self._cleanups.append(partial(function, *args, **kwargs))

    def take_cleanups(self) -> list[Callable[[], object]]:
        """The cleanup calls in the order of execution. Each is returned once. For the worker."""
        taken, self._cleanups[:] = self._cleanups[::-1], []
        return taken

    def cancel(self) -> None:
        """Ask the task to stop, by setting `cancelled`. For the worker."""
        self._cancel.set()
