"""The function of a task: its name, its parameters and their types."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, Literal, Union, get_args, get_type_hints

import msgspec
from msgspec import UNSET, UnsetType

from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import InvalidInput
from mainspring.kinds.registry import task_kinds
from mainspring.sdk.tasks.context import Context
from mainspring.wire.fields import Duration

ExecutorName = Literal["process"]
_RESERVED = tuple(kind.name for kind in task_kinds())


def check_name(name: str) -> str:
    if not name or len(name) > 200 or name in _RESERVED:
        reserved = " and ".join(map(repr, _RESERVED))
        raise ValueError(f"{name!r} is not a valid task name. Use 1 to 200 characters, but not {reserved}.")
    if name == "<lambda>":
        raise ValueError('a lambda needs a name: @app.task("name")')
    return name


def check_executor(executor: ExecutorName | None) -> ExecutorName | None:
    if executor not in (None, "process"):
        raise ValueError(f"executor: {executor!r} is unknown. Use 'process', or leave it out.")
    return executor


def check_worker_concurrency(number: int | None) -> int | None:
    if number is not None and (not isinstance(number, int) or number < 1):
        raise ValueError(f"worker_concurrency: {number!r} is not a whole number of 1 or more")
    return number


def check_delay(task: str, delay: Duration | None) -> Duration | None:
    """`delay`, if it is a duration."""
    if delay is not None:
        try:
            parse_duration(delay.total_seconds() if isinstance(delay, timedelta) else delay, "delay", least=0.0)
        except InvalidInput as error:
            raise ValueError(f"task {task}: {error.in_sentences()}") from None
    return delay


def payload_parameters(task: str, signature: inspect.Signature) -> dict[str, inspect.Parameter]:
    """The parameters that come from the payload, in order."""
    context = context_parameter(signature)
    found = {}
    for name, parameter in signature.parameters.items():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise TypeError(f"task {task}: a payload has named values only, so {parameter} must be a keyword parameter")
        if parameter.kind is not parameter.VAR_KEYWORD and name != context:
            found[name] = parameter
    return found


def context_parameter(signature: inspect.Signature) -> str | None:
    """The parameter with the annotation Context, or the one named ctx."""
    for name, parameter in signature.parameters.items():
        if _is_context(parameter.annotation):
            return name
    return "ctx" if "ctx" in signature.parameters else None


def _is_context(annotation: Any) -> bool:
    if isinstance(annotation, str):  # under `from __future__ import annotations`
        return annotation.removesuffix("| None").strip().rpartition(".")[2] == Context.__name__
    return annotation is Context or Context in get_args(annotation)


def type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The type of each parameter. A type that cannot be resolved (imported only for type checkers) is left out. The
    function gets the plain JSON value then."""
    found: dict[str, Any] = {}
    for name, annotation in getattr(function, "__annotations__", {}).items():
        alone = SimpleNamespace(__annotations__={name: annotation})
        with suppress(NameError, AttributeError):
            found |= get_type_hints(alone, getattr(function, "__globals__", {}), include_extras=True)
    return found


def readable(kind: Any) -> Any:
    """`kind` if msgspec can decode it, otherwise Any: the function gets the plain JSON value then."""
    try:
        msgspec.json.Decoder(kind)
    except TypeError:
        return Any
    return kind


def lacks_context(signature: inspect.Signature, args: tuple[Any, ...], params: Mapping[str, Any]) -> bool:
    """Whether a call of the function fails because it has no context."""
    name = context_parameter(signature)
    if name is None or name in params:
        return False
    first = next(iter(signature.parameters)) == name
    try:
        if first:
            signature.bind(None, *args, **params)
        else:
            signature.bind(*args, **params, **{name: None})
    except TypeError:
        return False
    return True


def needs_context(task: str, parameter: str | None) -> str:
    """Why a call of the function has failed that has no context."""
    return (
        f"{task}() needs {parameter}, the context that a worker gives it. Run it with mainspring.testing, or pass "
        f"{parameter}=Context(...)."
    )


def payload_shape(
    function: Callable[..., Any], parameters: Mapping[str, inspect.Parameter], *, takes_any: bool
) -> type[msgspec.Struct]:
    """The payload as a struct, whose fields are the parameters. One that may be left out is UNSET then."""
    hints = type_hints(function)
    fields: list[Any] = []
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty:
            fields.append((name, readable(hints.get(name, Any))))
        else:
            fields.append((name, readable(Union[hints.get(name, Any), UnsetType]), UNSET))  # noqa: UP007 - at run time
    return msgspec.defstruct("Payload", fields, kw_only=True, forbid_unknown_fields=not takes_any)
