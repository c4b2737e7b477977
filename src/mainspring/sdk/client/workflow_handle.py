"""A handle of a workflow run: reads it, waits for its end, cancels it and runs parts of it again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, overload

from mainspring.domain.durations import format_duration
from mainspring.domain.errors import NotFound
from mainspring.kernel.clock import Clock, SystemClock
from mainspring.sdk.client import calls
from mainspring.sdk.client.blocking_waits import warn_in_coroutine
from mainspring.sdk.client.handle import ENDED_NAMES, FIRST_PAUSE, LONGEST_PAUSE
from mainspring.sdk.client.sender import AsyncSender, Sender
from mainspring.sdk.errors import RunFailed
from mainspring.wire.workflows import StepRunView, WorkflowRunView

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
_CLOCK = SystemClock()
Seen = Callable[[WorkflowRunView], None]


class NamedStep(Protocol[R_co]):
    """A step of a workflow that was built in Python. R is what its task returns."""

    @property
    def name(self) -> str:
        """Its name in the workflow."""

    @property
    def result(self) -> R_co:
        """Its result."""


class WorkflowWait:
    """When to look again, and when to stop."""

    def __init__(self, timeout: float | None, seen: Seen | None, clock: Clock = _CLOCK) -> None:
        self._clock = clock
        self._timeout = timeout
        self._deadline = float("inf") if timeout is None else clock.monotonic() + timeout
        self._seen = seen
        self._pause = FIRST_PAUSE
        self.answered = False

    @property
    def left(self) -> float:
        return max(0.0, self._deadline - self._clock.monotonic())

    def over(self, view: WorkflowRunView) -> bool:
        """Whether the run has ended. Raises TimeoutError after the timeout."""
        self.answered = True
        if self._seen is not None:
            self._seen(view)
        over = view.status in ENDED_NAMES
        if not over and self.left <= 0:
            counts = ", ".join(f"{number} {state}" for state, number in view.counts.items())
            raise TimeoutError(
                f"workflow run {view.run_id} is still {view.status} after {format_duration(self._timeout or 0)}"
                + (f": {counts}" if counts else "")
            )
        return over

    def pause(self) -> float:
        pause = min(self._pause, self.left)
        self._pause = min(LONGEST_PAUSE, self._pause * 1.5)
        return pause


def succeeded(view: WorkflowRunView) -> WorkflowRunView:
    """The run, if it has succeeded. Raises RunFailed otherwise."""
    if view.status == "SUCCESS":
        return view
    detail = view.reason or f"the workflow run ended with {view.status}"
    raise RunFailed(f"workflow {view.workflow_id}: {detail}", status=view.status)


def step_name(step: NamedStep[Any] | str) -> str:
    return step if isinstance(step, str) else step.name


def _run_of(name: str, steps: list[StepRunView]) -> str:
    """The run of the step with this name."""
    run_id = next((step.run_id for step in steps if step.name == name), None)
    if run_id is None:
        raise NotFound(f"the workflow run has no run of a step {name!r}")
    return run_id


class WorkflowRun:
    """A run of a workflow. `run_id` is its id."""

    def __init__(self, client: Sender, run_id: str) -> None:
        self._client = client
        self.run_id = run_id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.run_id!r})"

    def view(self) -> WorkflowRunView:
        """Read the run with its steps."""
        return self._client.send(calls.workflow_run(self.run_id))

    def status(self) -> str:
        """Read the state of the run."""
        return self.view().status

    def wait(self, timeout: float | None = None, *, seen: Seen | None = None) -> WorkflowRunView:
        """Wait until the run ends and return it, whatever its status. `seen` is called with each answer. Raises
        TimeoutError after `timeout` seconds."""
        warn_in_coroutine("await run.wait() of the AsyncClient")
        watch = WorkflowWait(timeout, seen)
        while True:
            view = self._client.send(calls.workflow_run(self.run_id), patience=watch.left, persist=watch.answered)
            if watch.over(view):
                return view
            time.sleep(watch.pause())

    def succeed(self, timeout: float | None = None) -> WorkflowRunView:
        """Wait until the run ends and return it. Raises RunFailed unless it succeeded."""
        return succeeded(self.wait(timeout))

    @overload
    def result(self, step: NamedStep[R], timeout: float | None = None) -> R: ...

    @overload
    def result(self, step: str, timeout: float | None = None) -> Any: ...

    def result(self, step: NamedStep[Any] | str, timeout: float | None = None) -> Any:
        """Wait until the run has succeeded and return the result of one of its steps."""
        found = self.succeed(timeout)
        name = step_name(step)
        run_id = _run_of(name, self._client.send(calls.workflow_steps(found.run_id, name=name)).steps)
        return self._client.send(calls.run(run_id)).result

    def cancel(self, *, reason: str | None = None) -> WorkflowRunView:
        """Cancel the run and all of its steps that have not ended."""
        return self._client.send(calls.cancel_workflow_run(self.run_id, reason=reason))

    def rerun(self, from_step: NamedStep[Any] | str | None = None, *, definition: str | None = None) -> WorkflowRunView:
        """Run a part of the ended run again: the steps that did not succeed and what follows them, or a step and what
        follows it."""
        name = None if from_step is None else step_name(from_step)
        return self._client.send(calls.rerun_workflow(self.run_id, name, definition=definition))


class AsyncWorkflowRun:
    """A run of a workflow, for async code. `run_id` is its id."""

    def __init__(self, client: AsyncSender, run_id: str) -> None:
        self._client = client
        self.run_id = run_id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.run_id!r})"

    async def view(self) -> WorkflowRunView:
        """Read the run with its steps."""
        return await self._client.send(calls.workflow_run(self.run_id))

    async def status(self) -> str:
        """Read the state of the run."""
        return (await self.view()).status

    async def wait(self, timeout: float | None = None, *, seen: Seen | None = None) -> WorkflowRunView:
        """Wait until the run ends and return it, whatever its status. `seen` is called with each answer. Raises
        TimeoutError after `timeout` seconds."""
        from asyncio import sleep

        watch = WorkflowWait(timeout, seen)
        while True:
            call = calls.workflow_run(self.run_id)
            view = await self._client.send(call, patience=watch.left, persist=watch.answered)
            if watch.over(view):
                return view
            await sleep(watch.pause())

    async def succeed(self, timeout: float | None = None) -> WorkflowRunView:
        """Wait until the run ends and return it. Raises RunFailed unless it succeeded."""
        return succeeded(await self.wait(timeout))

    @overload
    async def result(self, step: NamedStep[R], timeout: float | None = None) -> R: ...

    @overload
    async def result(self, step: str, timeout: float | None = None) -> Any: ...

    async def result(self, step: NamedStep[Any] | str, timeout: float | None = None) -> Any:
        """Wait until the run has succeeded and return the result of one of its steps."""
        found = await self.succeed(timeout)
        name = step_name(step)
        run_id = _run_of(name, (await self._client.send(calls.workflow_steps(found.run_id, name=name))).steps)
        return (await self._client.send(calls.run(run_id))).result

    async def cancel(self, *, reason: str | None = None) -> WorkflowRunView:
        """Cancel the run and all of its steps that have not ended."""
        return await self._client.send(calls.cancel_workflow_run(self.run_id, reason=reason))

    async def rerun(
        self, from_step: NamedStep[Any] | str | None = None, *, definition: str | None = None
    ) -> WorkflowRunView:
        """Run a part of the ended run again: the steps that did not succeed and what follows them, or a step and what
        follows it."""
        name = None if from_step is None else step_name(from_step)
        return await self._client.send(calls.rerun_workflow(self.run_id, name, definition=definition))
