"""What an application puts around each attempt of its tasks and around each submission: generators that yield once.

A plain generator runs where the task runs: its code before `yield` comes before the task, the rest after it. Around an
async task it does not wait for anything, but what it sets (a context variable, a scope) is set for the task. An async
generator can wait; it wraps async tasks alone.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from functools import partial
from typing import Any, Literal, NoReturn, TypeVar

from mainspring.sdk.tasks.context import Context

T = TypeVar("T")
Request = dict[str, Any]
"""The fields of a job that is being submitted, as `POST /v1/jobs` takes them. A middleware may change them."""
AttemptMiddleware = Callable[[Context], Generator[None, Any, None] | AsyncGenerator[None, Any]]
SubmissionMiddleware = Callable[[Request], Generator[None, Any, None]]
Middleware = AttemptMiddleware | SubmissionMiddleware
Around = Literal["attempt", "submission"]
MiddlewareT = TypeVar("MiddlewareT", bound=Callable[..., Any])


class Middlewares:
    """The middlewares of an application. The one that was declared first is the outermost."""

    def __init__(self) -> None:
        self.attempts: list[Callable[[Context], Any]] = []
        self.submissions: list[Callable[[Request], Any]] = []

    def add(self, middleware: MiddlewareT, around: str) -> MiddlewareT:
        """Raises TypeError or ValueError for what is no middleware."""
        if around not in ("attempt", "submission"):
            raise ValueError(f"a middleware cannot be around {around!r}. It is around 'attempt' or 'submission'.")
        name = getattr(middleware, "__qualname__", repr(middleware))
        waits = inspect.isasyncgenfunction(middleware)
        if not waits and not inspect.isgeneratorfunction(middleware):
            raise TypeError(f"the middleware {name} is no generator function. Write code, one `yield`, and more code.")
        if waits and around == "submission":
            raise TypeError(
                f"the middleware {name} is async, and submit() cannot wait for it. Write it without async: it is also "
                "around submit_async()."
            )
        what = "ctx" if around == "attempt" else "request"
        try:
            inspect.signature(middleware).bind(None)
        except TypeError:
            raise TypeError(f"the middleware {name} takes one parameter: def {name}({what})") from None
        (self.attempts if around == "attempt" else self.submissions).append(middleware)
        return middleware

    def around_attempt(self, call: Callable[[], Any], ctx: Context, *, is_async: bool) -> Callable[[], Any]:
        """The call of the task with the middlewares around it. For an async task it returns a coroutine, too."""
        for middleware in reversed(self.attempts):
            if is_async:
                call = partial(_awaited, middleware, ctx, call)
            elif not inspect.isasyncgenfunction(middleware):
                call = partial(_called, middleware, ctx, call)
        return call

    def submit(self, request: Request, send: Callable[[], T]) -> T:
        call = send
        for middleware in reversed(self.submissions):
            call = partial(_called, middleware, request, call)
        return call()

    async def submit_async(self, request: Request, send: Callable[[], Awaitable[T]]) -> T:
        call: Callable[[], Awaitable[T]] = send
        for middleware in reversed(self.submissions):
            call = partial(_awaited, middleware, request, call)
        return await call()


def _called(middleware: Callable[[Any], Any], given: Any, call: Callable[[], Any]) -> Any:
    steps = middleware(given)
    _begin(middleware, steps)
    try:
        outcome = call()
    except BaseException as error:
        _tell(middleware, steps, error)
        raise
    _end(middleware, steps, outcome)
    return outcome


async def _awaited(middleware: Callable[[Any], Any], given: Any, call: Callable[[], Awaitable[Any]]) -> Any:
    steps = middleware(given)
    waits = inspect.isasyncgen(steps)
    if waits:
        try:
            await anext(steps)
        except StopAsyncIteration:
            _has_no_yield(middleware)
    else:
        _begin(middleware, steps)
    try:
        outcome = await call()
    except GeneratorExit:  # the loop is closed: nothing can be waited for
        raise
    except BaseException as error:
        if waits:
            await _tell_async(middleware, steps, error)
        else:
            _tell(middleware, steps, error)
        raise
    if waits:
        try:
            await steps.asend(outcome)
        except StopAsyncIteration:
            return outcome
        _yields_again(middleware)
    _end(middleware, steps, outcome)
    return outcome


def _begin(middleware: Any, steps: Generator[Any, Any, Any]) -> None:
    try:
        next(steps)
    except StopIteration:
        _has_no_yield(middleware)


def _end(middleware: Any, steps: Generator[Any, Any, Any], outcome: Any) -> None:
    try:
        steps.send(outcome)
    except StopIteration:
        return
    _yields_again(middleware)


def _tell(middleware: Any, steps: Generator[Any, Any, Any], error: BaseException) -> None:
    """The error is raised where the middleware yields. It counts unless the middleware raises another."""
    try:
        steps.throw(error)
    except StopIteration:
        return
    except BaseException as raised:
        if raised is error or _is_wrapped(raised, error):
            return
        raise
    _yields_again(middleware)


async def _tell_async(middleware: Any, steps: AsyncGenerator[Any, Any], error: BaseException) -> None:
    try:
        await steps.athrow(error)
    except StopAsyncIteration:
        return
    except BaseException as raised:
        if raised is error or _is_wrapped(raised, error):
            return
        raise
    _yields_again(middleware)


def _is_wrapped(raised: BaseException, error: BaseException) -> bool:
    """Python makes a RuntimeError of a StopIteration that leaves a generator."""
    ends = isinstance(error, StopIteration | StopAsyncIteration)
    return ends and isinstance(raised, RuntimeError) and raised.__cause__ is error


def _has_no_yield(middleware: Any) -> NoReturn:
    raise RuntimeError(f"the middleware {middleware.__qualname__} has ended without `yield`")


def _yields_again(middleware: Any) -> NoReturn:
    raise RuntimeError(f"the middleware {middleware.__qualname__} yields more than once")
