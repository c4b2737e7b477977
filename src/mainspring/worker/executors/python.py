"""Registered Python functions: `async def` on the worker's loop, plain `def` in threads."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import msgspec

from mainspring.kernel.config import MAX_RESULT_BYTES
from mainspring.sdk.context import Context
from mainspring.sdk.errors import BadPayload
from mainspring.sdk.task import Task
from mainspring.worker.attempt import SUCCEEDED, Attempt, Ending, Execute, Heeds, ending_after_stop, failed
from mainspring.worker.executors.threads import ThreadPool

_FRAMES = 8
_encode = msgspec.json.Encoder().encode


class PythonExecutor:
    """Neither a coroutine nor a thread can be ended for certain: when the lease is lost the process must go."""

    killable = False

    def __init__(self, tasks: Mapping[str, Task[Any, Any]], slots: int) -> None:
        self._tasks = tasks
        self._threads: ThreadPool[Ending] = ThreadPool(slots)

    def offers(self) -> dict[str, Execute]:
        return {
            name: _on_the_loop(task) if task.kind == "async" else _in_a_thread(task, self._threads)
            for name, task in self._tasks.items()
        }

    def kill_all(self) -> None:
        """Nothing to do: see `killable`."""


def _on_the_loop(task: Task[Any, Any]) -> Execute:
    wants_context = task.context_parameter is not None
    bind = task.bind_json

    async def execute(attempt: Attempt) -> Ending:
        context = None
        if wants_context:
            context = _context(attempt)
            attempt.on_stop = context.cancel
        try:
            result = await bind(attempt.order.payload, context)()
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - a task may raise anything, sys.exit() included
            return ending_of_error(error) if attempt.stopping is None else ending_after_stop(attempt)
        if attempt.stopping is not None:
            return ending_after_stop(attempt)
        return SUCCEEDED if result is None else ending_of_result(result)

    return execute


def _in_a_thread(task: Task[Any, Any], threads: ThreadPool[Ending]) -> Execute:
    async def execute(attempt: Attempt) -> Ending:
        context = _context(attempt)
        try:
            call = task.bind_json(attempt.order.payload, context)
        except Exception as error:  # noqa: BLE001 - annotations are the user's code too
            return ending_of_error(error)
        attempt.on_stop = context.cancel
        attempt.heeds = Heeds.NOTHING
        ending = await threads.run(lambda: _called(call))
        return ending if attempt.stopping is None else ending_after_stop(attempt)

    return execute


def _called(call: Callable[[], Any]) -> Ending:
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - a task may raise anything, sys.exit() included
        return ending_of_error(error)
    if inspect.iscoroutine(result):
        result.close()
        return failed("TypeError: the task returned a coroutine; declare it with async def", retry=False)
    return SUCCEEDED if result is None else ending_of_result(result)


def _context(attempt: Attempt) -> Context:
    order = attempt.order
    return Context(
        job_id=order.job_id,
        run_id=str(order.run_id),
        attempt=order.attempt,
        scheduled_for=order.scheduled_for,
        task=order.task,
        name=order.name,
    )


def ending_of_result(result: object) -> Ending:
    """SUCCESS with the result as JSON; a result that cannot be kept is an error that another try would not mend."""
    try:
        data = _encode(result)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        return failed(f"{type(error).__name__}: the result cannot be kept as JSON: {error}", retry=False)
    if len(data) > MAX_RESULT_BYTES:
        return failed(f"the result has {len(data)} bytes, at most {MAX_RESULT_BYTES} are kept", retry=False)
    return Ending(result=msgspec.Raw(data))


def ending_of_error(error: BaseException) -> Ending:
    """FAILED with "ValueError: message" and the last frames of the traceback."""
    if isinstance(error, BadPayload):
        return failed(error.detail, retry=False)
    headline = "".join(traceback.format_exception_only(error)).strip()
    frames = "".join(traceback.format_tb(_users_frames(error.__traceback__), limit=-_FRAMES))
    return failed(f"{headline}\n{frames}".rstrip())


def _users_frames(frames: TracebackType | None) -> TracebackType | None:
    """The traceback without our own frames at its top."""
    while frames is not None and frames.tb_next is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return frames
