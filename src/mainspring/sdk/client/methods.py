"""Turns calls into methods of the clients: one that blocks, and one that is awaited.

`blocking(lambda: calls.queue)` names its call without importing it. The method is made when it is first looked up: the
modules of all calls take 60 ms to import, and few programs use more than two of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from mainspring.sdk.client.core import Call
from mainspring.sdk.client.searches import PageT

T = TypeVar("T")
P = ParamSpec("P")


def blocking(named: Callable[[], Callable[P, Call[T]]]) -> Callable[Concatenate[Any, P], T]:
    """A method of `Client` that sends the call."""

    def made(build: Callable[P, Call[T]]) -> Any:
        @wraps(build)
        def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
            result: T = self.send(build(*args, **kwargs))
            return result

        return method

    return cast("Any", _Method(named, made))  # type: ignore[no-any-return]


def awaited(named: Callable[[], Callable[P, Call[T]]]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A method of `AsyncClient` that sends the call."""

    def made(build: Callable[P, Call[T]]) -> Any:
        @wraps(build)
        async def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
            result: T = await self.send(build(*args, **kwargs))
            return result

        return method

    return cast("Any", _Method(named, made))  # type: ignore[no-any-return]


def blocking_search(named: Callable[[], Callable[P, Call[PageT]]]) -> Callable[Concatenate[Any, P], PageT]:
    """A method of `Client` that sends the call, and goes on where the search ended before its end."""

    def made(build: Callable[P, Call[PageT]]) -> Any:
        @wraps(build)
        def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> PageT:
            result: PageT = self.search(build(*args, **kwargs))
            return result

        return method

    return cast("Any", _Method(named, made))  # type: ignore[no-any-return]


def awaited_search(
    named: Callable[[], Callable[P, Call[PageT]]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, PageT]]:
    """A method of `AsyncClient` that sends the call, and goes on where the search ended before its end."""

    def made(build: Callable[P, Call[PageT]]) -> Any:
        @wraps(build)
        async def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> PageT:
            result: PageT = await self.search(build(*args, **kwargs))
            return result

        return method

    return cast("Any", _Method(named, made))  # type: ignore[no-any-return]


class _Method:
    """Makes the method when it is first looked up, and puts it in its own place."""

    def __init__(self, named: Callable[[], Any], made: Callable[[Any], Any]) -> None:
        self._named, self._made = named, made

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: Any, owner: type) -> Any:
        method = self._made(self._named())
        _show_self(method)
        setattr(self._owner, self._name, method)
        return method if instance is None else method.__get__(instance, owner)


def _show_self(method: Any) -> None:
    """Set the signature with `self`. With `wraps` alone, help() would drop the first real parameter."""
    signature = inspect.signature(method)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__signature__ = signature.replace(parameters=[own, *signature.parameters.values()])
