"""Python tasks of the application: `async def` on the event loop of the worker, plain `def` in threads."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from mainspring.kernel.logs import get_logger
from mainspring.sdk.tasks.context import Context
from mainspring.sdk.tasks.task import Task
from mainspring.worker.execution.attempt import (
    RETURNED,
    SUCCEEDED,
    Attempt,
    AttemptEnding,
    Execute,
    NoteProgress,
    OpenLog,
    StopSupport,
    ending_after_stop,
    failed,
)
from mainspring.worker.execution.endings import ending_of_call, ending_of_error, ending_of_result
from mainspring.worker.execution.interruption import Interruption
from mainspring.worker.executors.process.child import Unfit
from mainspring.worker.executors.python.blocked_loop import BlockedLoopWatch
from mainspring.worker.executors.python.threads import ThreadPool
from mainspring.worker.output.capture import LogWriter, current, shielded

_INTERRUPTED = failed("the task was interrupted by its worker")
_set_current = current.set

log = get_logger("worker")


class PythonExecutor:
    """Neither a coroutine nor a thread can be ended for certain: when the lease is lost, the process must end.

    Without `open_log` the output of tasks is not kept, and without `note_progress` their progress. `apart` runs an
    attempt in a child process. It is used for runs that were lost before, which may have ended their worker's process.
    """

    killable = False
    has_processes = False  # a run that was lost before may have one

    def __init__(
        self,
        tasks: Mapping[str, Task[Any, Any]],
        slots: int,
        *,
        open_log: OpenLog | None = None,
        note_progress: NoteProgress | None = None,
        apart: Execute | None = None,
    ) -> None:
        self._tasks = tasks
        self._apart = apart
        self._threads: ThreadPool[AttemptEnding] = ThreadPool(slots)
        self._open_log = open_log
        self._note_progress = note_progress
        self._log_writer: LogWriter | None = None
        self._blocked_loop = BlockedLoopWatch()

    @property
    def isolates(self) -> bool:
        return self._apart is not None

    def offers(self) -> dict[str, Execute]:
        return {
            name: self._on_the_loop(task) if task.kind == "async" else self._in_a_thread(task)
            for name, task in self._tasks.items()
        }

    def kill_all(self) -> None:
        """Does nothing: see `killable`."""

    def _on_the_loop(self, task: Task[Any, Any]) -> Execute:
        wants_context = task.wants_context
        bind, watch = task.bind_json, self._blocked_loop

        async def execute(attempt: Attempt) -> AttemptEnding:
            order = attempt.order
            if order.setup is not None and (refusal := _without_effect(attempt)):
                return refusal
            if order.losses and self._apart is not None:
                return await self._run_apart(attempt, self._apart)
            _set_current(attempt)
            context = None
            if wants_context:
                context = self._context(attempt)
                attempt.on_stop = context.cancel
            watch.begin()
            try:
                result = await bind(attempt.order.payload, context)()
            except GeneratorExit:
                raise
            except BaseException as error:  # noqa: BLE001 - a task may raise anything, sys.exit() included
                ending = ending_of_error(error)
            else:
                ending = SUCCEEDED if result is None else ending_of_result(result)
            finally:
                watch.end()
            if attempt.stopping is not None:
                ending = ending_after_stop(attempt)
            if context is not None:
                await _clean_up(context)
                attempt.on_stop = None  # breaks a reference cycle
            if attempt.log is not None:
                await _finish_log(attempt)
            return ending

        watch.of = execute.__code__
        return execute

    def _in_a_thread(self, task: Task[Any, Any]) -> Execute:
        async def execute(attempt: Attempt) -> AttemptEnding:
            order = attempt.order
            if order.setup is not None and (refusal := _without_effect(attempt)):
                return refusal
            if order.losses and self._apart is not None:
                return await self._run_apart(attempt, self._apart)
            _set_current(attempt)
            context = self._context(attempt)
            try:
                call = task.bind_json(attempt.order.payload, context)
            except BaseException as error:  # noqa: BLE001 - annotations are user code too
                return ending_of_error(error)
            interruption = attempt.interruption = Interruption()
            attempt.on_stop, attempt.kill = context.cancel, interruption.interrupt
            attempt.stops_by = StopSupport.NOTHING
            ending = await self._threads.run(partial(_called, call, context, interruption))
            attempt.on_stop = attempt.kill = None
            attempt.stops_by = StopSupport.REQUEST  # it has ended; only its log may take longer
            if attempt.stopping is not None:
                ending = ending_after_stop(attempt)
            if attempt.log is not None:
                await _finish_log(attempt)
            return ending

        return execute

    async def _run_apart(self, attempt: Attempt, apart: Execute) -> AttemptEnding:
        """Run it in a child process. If children cannot load the application, the run goes back to the server, and the
        next one of its kind runs here without neighbours."""
        try:
            return await apart(attempt)
        except Unfit as error:
            self._apart = None
            log.warning("runs that were lost before cannot run in a child process", error=str(error))
            return RETURNED

    def _context(self, attempt: Attempt) -> Context:
        order = attempt.order
        context = Context(
            job_id=order.job_id,
            run_id=str(order.run_id),
            attempt=order.attempt,
            scheduled_for=order.scheduled_for,
            task=order.task,
            name=order.name,
            max_attempts=order.max_attempts,
            snoozes=order.snoozes,
            _at_most_once=order.at_most_once,
            _key=order.idempotency_key,
            generation=order.generation,
            _secrets={} if order.secrets is None else order.secrets.values,
            _fence=order.fence,
        )
        if self._log_writer is None and self._open_log is not None:
            self._log_writer = LogWriter(self._open_log)
        context._channel = _Channel(attempt, self._log_writer, self._note_progress)
        return context


class _Channel:
    """Writes what a context logs to the log of the attempt, and keeps its progress for the next exchange."""

    __slots__ = ("_attempt", "_log_writer", "_note_progress")

    def __init__(self, attempt: Attempt, log_writer: LogWriter | None, note_progress: NoteProgress | None) -> None:
        self._attempt = attempt
        self._log_writer = log_writer
        self._note_progress = note_progress

    def progress(self, fraction: float | None, message: str | None) -> None:
        if self._note_progress is None:
            return
        with shielded(self._attempt):
            self._note_progress(self._attempt, fraction, message)

    def log(self, text: str) -> None:
        if self._log_writer is not None:
            self._log_writer.write(self._attempt, text.encode("utf-8", "backslashreplace"))


def _called(call: Callable[[], Any], context: Context, interruption: Interruption) -> AttemptEnding:
    """In the thread: run the task and then its clean-ups, which are not interrupted."""
    ending = interruption.run(partial(ending_of_call, call), _INTERRUPTED)
    for clean_up in context.take_cleanups():
        try:
            if inspect.iscoroutine(left := clean_up()):
                left.close()
                context.log("a clean-up is a coroutine function, which only an async task can have")
        except BaseException as error:  # noqa: BLE001 - a clean-up may raise anything; it changes nothing
            context.log(_clean_up_failed(error), end="")
    return ending


async def _clean_up(context: Context) -> None:
    for clean_up in context.take_cleanups():
        try:
            if inspect.isawaitable(left := clean_up()):
                await left
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - a clean-up may raise anything; it changes nothing
            context.log(_clean_up_failed(error), end="")


def _clean_up_failed(error: BaseException) -> str:
    return "a clean-up failed: " + "".join(traceback.format_exception(error))


async def _finish_log(attempt: Attempt) -> None:
    """The ending is decided. A cancellation now only means not to wait for the rest of the log."""
    assert attempt.log is not None
    try:
        await attempt.log.finish()
    except asyncio.CancelledError:
        return


def _without_effect(attempt: Attempt) -> AttemptEnding | None:
    """Fail if the job has a setting that has no effect on the loop or in a thread."""
    setup = attempt.order.setup
    if setup is None:
        return None
    limits = setup.limits
    asked = {
        "env": setup.env,
        "limits.memory": limits and limits.memory,
        "limits.cpu": limits and limits.cpu,
        "limits.processes": limits and limits.processes,
        "limits.files": limits and limits.files,
        "limits.disk": limits and limits.disk,
        "sandbox": setup.sandbox,
        "run_as": setup.run_as,
    }
    for name, value in asked.items():
        if value:
            if name in ("sandbox", "run_as"):
                return failed(f"{name} has an effect only on shell commands", retry=False)
            return failed(
                f"{name} has an effect only on shell and process tasks: declare the task with executor='process'",
                retry=False,
            )
    return None
