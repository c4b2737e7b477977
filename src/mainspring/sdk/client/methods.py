"""Turns calls into methods of the clients: one that blocks, and one that is awaited."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from mainspring.sdk.client.core import Call
from mainspring.sdk.client.searches import PageT

T = TypeVar("T")
P = ParamSpec("P")


def blocking(build: Callable[P, Call[T]]) -> Callable[Concatenate[Any, P], T]:
    """A method of `Client` that sends the call."""

    @wraps(build)
    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = self.send(build(*args, **kwargs))
        return result

    _show_self(method)
    return method


def awaited(build: Callable[P, Call[T]]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A method of `AsyncClient` that sends the call."""

    @wraps(build)
    async def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await self.send(build(*args, **kwargs))
        return result

    _show_self(method)
    return method


def blocking_search(build: Callable[P, Call[PageT]]) -> Callable[Concatenate[Any, P], PageT]:
    """A method of `Client` that sends the call, and goes on where the search ended before its end."""

    @wraps(build)
    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> PageT:
        result: PageT = self.search(build(*args, **kwargs))
        return result

    _show_self(method)
    return method


def awaited_search(build: Callable[P, Call[PageT]]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, PageT]]:
    """The same for `AsyncClient`."""

    @wraps(build)
    async def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> PageT:
        result: PageT = await self.search(build(*args, **kwargs))
        return result

    _show_self(method)
    return method


def _show_self(method: Any) -> None:
    """Set the signature with `self`. With `wraps` alone, help() would drop the first real parameter."""
    signature = inspect.signature(method)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__signature__ = signature.replace(parameters=[own, *signature.parameters.values()])
