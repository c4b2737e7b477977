"""The types of the decorators: what `@app.task`, `@app.cron` and `@app.every` return for which function.

A worker gives `ctx` to the function, so callers of `submit` must not. If `ctx` is the first parameter, type checkers
can tell it from the parameters of the payload, and check names and types of these. They cannot take a last parameter
away. A task that has `ctx` there takes any payload for them, and the SDK checks it when it is submitted.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, Protocol, TypeVar, TypeVarTuple, Unpack, overload

from mainspring.sdk.tasks.context import Context
from mainspring.sdk.tasks.task import FunctionTask, Task

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Ts = TypeVarTuple("Ts")
TaskT = TypeVar("TaskT", bound=Task[..., Any])

Async = Coroutine[Any, Any, R]


class TakesContext(Protocol[P, R_co]):
    """A function whose first parameter is `ctx`."""

    def __call__(self, ctx: Context, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function."""


class TaskDecorator(Protocol):
    """Turns a function into a task. A task stays what it is."""

    @overload
    def __call__(self, function: TaskT, /) -> TaskT: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, function: TakesContext[P, Async[R]], /) -> FunctionTask[P, R, TakesContext[P, Async[R]]]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, function: TakesContext[P, R], /) -> FunctionTask[P, R, TakesContext[P, R]]: ...

    @overload
    def __call__(
        self, function: Callable[[Unpack[Ts], Context], Async[R]], /
    ) -> FunctionTask[..., R, Callable[..., Async[R]]]: ...

    @overload
    def __call__(self, function: Callable[[Unpack[Ts], Context], R], /) -> FunctionTask[..., R, Callable[..., R]]: ...

    @overload
    def __call__(self, function: Callable[P, Async[R]], /) -> FunctionTask[P, R, Callable[P, Async[R]]]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> FunctionTask[P, R, Callable[P, R]]: ...

    def __call__(self, function: Any, /) -> Any:
        """Register the function."""
