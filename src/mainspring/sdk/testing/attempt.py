"""One attempt of a task, in the process of the test."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Coroutine, Generator
from typing import Any, NamedTuple, TypeVar

import msgspec

from mainspring.domain.job import Delivery
from mainspring.kernel.config import MAX_RESULT_BYTES
from mainspring.sdk.errors import BadPayload, GiveUp, Retry, Snooze, snooze_in
from mainspring.sdk.tasks.context import Context
from mainspring.sdk.tasks.task import Task
from mainspring.sdk.testing.records import BoxRun
from mainspring.wire.execution import Cause

T = TypeVar("T")
Steps = Generator[Coroutine[Any, Any, Any], Any, T]
"""A generator that yields awaitables, so that both sync and async tests can run it."""

# Not all of BaseException: KeyboardInterrupt and pytest.fail in a task must end the test.
_A_TASKS_ERRORS = (Exception, SystemExit, asyncio.CancelledError, Snooze, BaseExceptionGroup)
_LOST = "worker lost"


class WorkerLost(BaseException):
    """Raised in a task by a test: the worker ends at this point. The attempt is lost, and its clean-ups do not run.

    It ends as if its machine had vanished. `alone`: its process died, and it held no other run. A run that is lost so
    after an earlier loss is not tried again."""

    def __init__(self, *, alone: bool = False) -> None:
        super().__init__()
        self.alone = alone


class AttemptFailure(NamedTuple):
    """Why an attempt failed, in the form that `after_failure` needs."""

    error: str
    wanted: bool = True
    retry_after: float | None = None
    cause: Cause | None = None
    exception: BaseException | None = None
    lost: bool = False
    lost_alone: bool = False
    snooze: float | None = None


class RunChannel:
    """Stores the progress and the logs that a task reports through its context."""

    def __init__(self, run: BoxRun) -> None:
        self._run = run

    def progress(self, fraction: float | None, message: str | None) -> None:
        self._run.progress = (fraction, message)

    def log(self, text: str) -> None:
        self._run.logs.append(text.removesuffix("\n"))


def run_attempt(task: Task[Any, Any], run: BoxRun) -> Steps[AttemptFailure | None]:
    """Call the task for `run`. Sets the result of the run, or returns the failure."""
    context = run.context = Context(
        job_id=run.job_id,
        run_id=run.run_id,
        attempt=run.attempt,
        scheduled_for=run.scheduled_for,
        task=run.task,
        name=run.definition.name,
        max_attempts=run.max_attempts,
        snoozes=run.snoozes,
        _at_most_once=run.definition.spec.delivery is Delivery.AT_MOST_ONCE,
        _key=run.idempotency_key,
        generation=run.generation,
        _channel=RunChannel(run),
    )
    failure: AttemptFailure | None = None
    is_async = inspect.iscoroutinefunction(task.function)
    try:
        result = task.bind_json((run.definition.payload or "").encode(), context)()
        if inspect.iscoroutine(result):
            if not is_async:
                result.close()
                raise GiveUp("the task returned a coroutine; declare it with async def")
            result = yield result
        run.result = _as_json(result)
    except WorkerLost as error:
        run.context = None
        return AttemptFailure(_LOST, exception=error, lost=True, lost_alone=error.alone)
    except _A_TASKS_ERRORS as error:
        failure = failure_of(error)
    yield from _run_cleanups(context, run, is_async=is_async)
    run.context = None
    return failure


def _run_cleanups(context: Context, run: BoxRun, *, is_async: bool) -> Steps[None]:
    for clean_up in context.take_cleanups():
        try:
            done = clean_up()
            if inspect.iscoroutine(done) and not is_async:
                done.close()
                run.logs.append("a clean-up is a coroutine function, which only an async task can have")
            elif inspect.iscoroutine(done):
                yield done
        except _A_TASKS_ERRORS as error:
            run.logs.append(f"a clean-up failed: {_headline(error)}")


class _NotKept(GiveUp):
    """The result of an attempt cannot be stored. A worker reports it without the name of an error."""


def _as_json(result: object) -> Any:
    """The result as a client would receive it."""
    if result is None:
        return None
    try:
        data = msgspec.json.encode(result)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise _NotKept(f"{type(error).__name__}: the result cannot be kept as JSON: {error}") from error
    if len(data) > MAX_RESULT_BYTES:
        raise _NotKept(f"the result has {len(data)} bytes, at most {MAX_RESULT_BYTES} are kept")
    return msgspec.json.decode(data)


def failure_of(error: BaseException) -> AttemptFailure:
    """What a worker would report for an attempt that raised `error`."""
    if (snooze := snooze_in(error)) is not None:
        return AttemptFailure("", exception=snooze, snooze=snooze.seconds)
    match error:
        case _NotKept():
            return AttemptFailure(str(error), wanted=False, exception=error)
        case BadPayload():
            return AttemptFailure(error.detail, wanted=False, exception=error)
        case GiveUp():
            return AttemptFailure(_headline(error), wanted=False, exception=error)
        case Retry():
            after = None if error.after is None else max(0.0, error.after)
            return AttemptFailure(_headline(error), retry_after=after, exception=error)
        case _:
            return AttemptFailure(_headline(error), cause=_cause(error), exception=error)


def _headline(error: BaseException) -> str:
    if isinstance(error, Retry | GiveUp):
        otherwise = "the task asked to be tried again" if isinstance(error, Retry) else "the task gave up"
        return f"{type(error).__name__}: {str(error) or otherwise}"
    return "".join(traceback.format_exception_only(error)).strip()


def _cause(error: BaseException) -> Cause:
    """The class of the error and its base classes, with short and full names, for the retry rules."""
    names: list[str] = []
    for kind in type(error).__mro__:
        if kind not in (object, BaseException):
            names.append(kind.__name__)
            if kind.__module__ != "builtins":
                names.append(f"{kind.__module__}.{kind.__qualname__}")
    return Cause(errors=list(dict.fromkeys(names)))
