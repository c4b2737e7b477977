"""A handle of a job: reads its status, or waits for its result."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar

import msgspec

from mainspring.domain.durations import format_duration
from mainspring.domain.transitions import ENDED
from mainspring.domain.transitions import JobStatus as JobState
from mainspring.kernel.clock import Clock, SystemClock
from mainspring.sdk.client import calls
from mainspring.sdk.client.blocking_waits import warn_in_coroutine
from mainspring.sdk.client.sender import AsyncSender, Sender
from mainspring.sdk.errors import RunFailed
from mainspring.wire.runs import JobStatus, RunView

FIRST_PAUSE = 0.02
LONGEST_PAUSE = 0.5
R_co = TypeVar("R_co", covariant=True)
Seen = Callable[[JobStatus], None]
ENDED_NAMES = frozenset(state.name for state in ENDED)


class WaitLoop:
    """The logic of waiting for the end of a run, without I/O: when to poll again, and when to stop."""

    def __init__(self, job_id: str, timeout: float | None, clock: Clock, seen: Seen | None = None) -> None:
        self._job_id = job_id
        self._seen = seen
        self._timeout = timeout
        self._clock = clock
        self._deadline = float("inf") if timeout is None else clock.monotonic() + timeout
        self._pause = FIRST_PAUSE
        self.answered = False

    def ended(self, status: JobStatus) -> RunView | None:
        """The run if it has ended. Raises TimeoutError after the timeout, and RunFailed if there will be no run."""
        self.answered = True
        if self._seen is not None:
            self._seen(status)
        run = status.latest_run
        if run is not None and run.status in ENDED_NAMES:
            return run
        if run is None and status.status == JobState.CANCELLED:
            raise RunFailed(f"job {self._job_id} was cancelled before it ran", status=status.status)
        if run is None and status.status == JobState.FAILED:
            raise RunFailed(status.error_message or f"job {self._job_id} did not run", status=status.status)
        if self.left() <= 0:
            raise TimeoutError(self._timeout_message(status))
        return None

    def left(self) -> float:
        """Seconds until the timeout."""
        return max(0.0, self._deadline - self._clock.monotonic())

    def pause(self) -> float:
        """Seconds to wait before the next poll: 20 ms at first, at most half a second."""
        pause = min(self._pause, self.left())
        self._pause = min(LONGEST_PAUSE, self._pause * 1.5)
        return pause

    def _timeout_message(self, status: JobStatus) -> str:
        run = status.latest_run
        state = status.status if run is None else run.status
        reason = f" ({run.reason})" if run is not None and run.reason else ""
        return f"job {self._job_id} is still {state}{reason} after {format_duration(self._timeout or 0)}"


def result_of(run: RunView, kind: Any = Any) -> Any:
    """The result of the run, converted to `kind`. A result that does not fit is returned as it is: annotations are not
    checked when a task returns. Raises RunFailed if the run did not succeed."""
    if run.status == "SUCCESS":
        if kind is Any:
            return run.result
        try:
            return msgspec.convert(run.result, kind, str_keys=True)
        except msgspec.ValidationError:
            return run.result
    detail = run.error_message or run.reason or f"the run ended with {run.status}"
    raise RunFailed(detail, status=run.status, run=run)


def state_of(status: JobStatus) -> str:
    """The state of the latest run, or of the job if it has not run yet."""
    return status.status if status.latest_run is None else status.latest_run.status


def run_id_of(status: JobStatus) -> str | None:
    """The id of the latest run, if there is one."""
    return None if status.latest_run is None else status.latest_run.run_id


class _Handle(Generic[R_co]):
    """`unique`: what became of the submission if another job had its unique key, and `job_id` is that job: "kept",
    "replaced" or "later". None if it created the job."""

    def __init__(self, job_id: str, run_id: str | None) -> None:
        self.job_id = job_id
        self.run_id = run_id
        self.unique: str | None = None
        self._result_type: Any = Any

    def merged(self, answer: str | None) -> Self:
        """This handle, with what became of its submission."""
        self.unique = answer
        return self

    def returning(self, kind: Any) -> Self:
        """This handle, with the type to which `result` converts. `task.submit` uses the annotation of the task."""
        self._result_type = kind
        return self

    def __repr__(self) -> str:
        run = f", run_id={self.run_id!r}" if self.run_id else ""
        unique = f", unique={self.unique!r}" if self.unique else ""
        return f"{type(self).__name__}({self.job_id!r}{run}{unique})"

    def _watch(self, timeout: float | None, seen: Seen | None) -> WaitLoop:
        return WaitLoop(self.job_id, timeout, SystemClock(), seen)

    def _as_status(self, run: RunView) -> JobStatus:
        return JobStatus(job_id=self.job_id, status=JobState.SCHEDULED, latest_run=run)


class Handle(_Handle[R_co]):
    """A submitted job, or one run of it if `run_id` is set. `Handle[R]` is the handle of a task that returns R."""

    def __init__(self, client: Sender, job_id: str, run_id: str | None = None) -> None:
        super().__init__(job_id, run_id)
        self._client = client

    def status(self) -> str:
        """The state of the latest run, or of the job if it has not run yet."""
        return state_of(self.look())

    def run(self) -> RunView | None:
        """The latest run, or None."""
        return self.look().latest_run

    def wait(self, timeout: float | None = None, *, seen: Seen | None = None) -> RunView:
        """Wait until the run ends and return it, whatever its status. `seen` is called with each polled status."""
        warn_in_coroutine("await (await task.submit_async(...)).result()")
        watch = self._watch(timeout, seen)
        while (run := watch.ended(self.look(patience=watch.left(), persist=watch.answered))) is None:
            time.sleep(watch.pause())
        return run

    def result(self, timeout: float | None = None) -> R_co:
        """Wait until the run ends and return its result. Raises RunFailed, or TimeoutError after `timeout` seconds."""
        result: R_co = result_of(self.wait(timeout), self._result_type)
        return result

    def logs(self, attempt: int | None = None) -> str:
        """The output of the latest run, or of the handle's own run. "" before it runs."""
        run_id = self.run_id or run_id_of(self.look())
        return "" if run_id is None else self._client.send(calls.logs(run_id, attempt))

    def cancel(self) -> None:
        """Cancel the run, or the whole job if this is the handle of a job."""
        if self.run_id is not None:
            self._client.send(calls.cancel_run(self.run_id))
        else:
            self._client.send(calls.cancel_job(self.job_id))

    def look(self, *, patience: float | None = None, persist: bool = False) -> JobStatus:
        """The job's status with its latest run, or with the handle's own run."""
        if self.run_id is not None:
            return self._as_status(self._client.send(calls.run(self.run_id), patience=patience, persist=persist))
        return self._client.send(calls.job_status(self.job_id), patience=patience, persist=persist)


class AsyncHandle(_Handle[R_co]):
    """A submitted job, or one run of it if `run_id` is set, for async code. `AsyncHandle[R]` is the handle of a task
    that returns R."""

    def __init__(self, client: AsyncSender, job_id: str, run_id: str | None = None) -> None:
        super().__init__(job_id, run_id)
        self._client = client

    async def status(self) -> str:
        """The state of the latest run, or of the job if it has not run yet."""
        return state_of(await self.look())

    async def run(self) -> RunView | None:
        """The latest run, or None."""
        return (await self.look()).latest_run

    async def wait(self, timeout: float | None = None, *, seen: Seen | None = None) -> RunView:
        """Wait until the run ends and return it, whatever its status. `seen` is called with each polled status."""
        from asyncio import sleep

        watch = self._watch(timeout, seen)
        while True:
            run = watch.ended(await self.look(patience=watch.left(), persist=watch.answered))
            if run is not None:
                return run
            await sleep(watch.pause())

    async def result(self, timeout: float | None = None) -> R_co:
        """Wait until the run ends and return its result. Raises RunFailed, or TimeoutError after `timeout` seconds."""
        result: R_co = result_of(await self.wait(timeout), self._result_type)
        return result

    async def logs(self, attempt: int | None = None) -> str:
        """The output of the latest run, or of the handle's own run. "" before it runs."""
        run_id = self.run_id or run_id_of(await self.look())
        return "" if run_id is None else await self._client.send(calls.logs(run_id, attempt))

    async def cancel(self) -> None:
        """Cancel the run, or the whole job if this is the handle of a job."""
        if self.run_id is not None:
            await self._client.send(calls.cancel_run(self.run_id))
        else:
            await self._client.send(calls.cancel_job(self.job_id))

    async def look(self, *, patience: float | None = None, persist: bool = False) -> JobStatus:
        """The job's status with its latest run, or with the handle's own run."""
        if self.run_id is not None:
            return self._as_status(await self._client.send(calls.run(self.run_id), patience=patience, persist=persist))
        return await self._client.send(calls.job_status(self.job_id), patience=patience, persist=persist)
