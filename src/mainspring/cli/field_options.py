"""The options of `mainspring submit` and `mainspring job edit` that describe a job, from the table of fields.

A field of a kind that is known here needs no line in the command line. The server checks the values.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from mainspring.cli import completing
from mainspring.cli.option_values import (
    breaker_of,
    concurrency_of,
    limits_of,
    misfire_of,
    notify_of,
    object_of,
    pairs_of,
    rate_of,
    unique_of,
    variables_of,
)
from mainspring.kinds.option_values import value_of
from mainspring.wire.fields import (
    CIRCUIT_BREAKER,
    CONCURRENCY,
    COUNT,
    FIELDS,
    MISFIRE,
    MOMENTS,
    NAMES,
    NOTIFY,
    PAIRS,
    RATE_LIMIT,
    RESOURCE_LIMITS,
    RETRY,
    SECRETS,
    UNIQUE,
    VARIABLES,
    Field,
    can_change,
)

_REPEATED = (PAIRS, VARIABLES, SECRETS, NAMES, MOMENTS, RESOURCE_LIMITS, NOTIFY)
# Keywords of the SDK that take what is typed.
_TEXTS = (
    "str", "Duration", "When", "Moment", "Priority", "Delivery", "Overlap", "Outside", "Sandbox", "ScheduleKind",
    "Rule", "OnUpstreamFailure", "OnDeadline",
)  # fmt: skip
# How the value of a field is made of what is typed, by its kind. Others take the text, or JSON.
_READERS: dict[object, Callable[[Any, Field], Any]] = {
    PAIRS: lambda texts, field: pairs_of(texts, field.name),
    VARIABLES: lambda texts, field: variables_of(texts, field.name),
    RESOURCE_LIMITS: lambda texts, _: limits_of(texts),
    RETRY: lambda text, field: object_of(text, field.name, '{"max_attempts": 3}'),
    MISFIRE: lambda text, _: misfire_of(text),
    UNIQUE: lambda text, _: unique_of(text),
    NOTIFY: lambda texts, _: notify_of(texts),
    RATE_LIMIT: lambda text, _: rate_of(text),
    CIRCUIT_BREAKER: lambda text, _: breaker_of(text),
}


def submit_options() -> list[inspect.Parameter]:
    """An option for each field that a job can have."""
    return [option for field in FIELDS for option in _options(field)]


def edit_options() -> list[inspect.Parameter]:
    """An option for each field that can be changed."""
    return [option for field in FIELDS if can_change(field) for option in _options(field)]


def field_values(typed: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a job that the options describe. None for those that are not given."""
    return {field.name: _value(field, typed) for field in FIELDS if any(each.name in typed for each in _options(field))}


def _options(field: Field) -> list[inspect.Parameter]:
    found = []
    if field.help is not None and field.option is not None:
        complete = None if field.offers is None else getattr(completing, field.offers)
        option = typer.Option(
            field.option,
            metavar=field.metavar or None,
            help=field.help,
            autocompletion=complete,
            rich_help_panel=field.panel,
        )
        kind: Any = list[str] if field.kind in _REPEATED else int if field.kind is COUNT else str
        found.append(_parameter(field.name, kind, option, switch=field.gives is not None))
    for part in field.parts:
        option = typer.Option(part.option, metavar=part.metavar or None, help=part.help, rich_help_panel=field.panel)
        found.append(_parameter(f"{field.name}_{part.member}", str, option, switch=part.gives is not None))
    return found


def _parameter(name: str, kind: Any, option: Any, *, switch: bool) -> inspect.Parameter:
    annotation: Any = Annotated[bool, option] if switch else Annotated[kind | None, option]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=False if switch else None, annotation=annotation
    )


def _value(field: Field, typed: Mapping[str, Any]) -> Any:
    text = typed.get(field.name)
    parts = {part.member: _given(typed.get(f"{field.name}_{part.member}"), part.gives) for part in field.parts}
    members = {member: value for member, value in parts.items() if value is not None}
    if field.kind is CONCURRENCY:
        return concurrency_of(text, members.get("key"), strict="order" in members)
    if field.parts:
        return members or None
    if field.gives is not None:
        return _given(text, field.gives)
    if text is None or text == []:
        return None
    if field.kind in _READERS:
        return _READERS[field.kind](text, field)
    is_text = not isinstance(text, str) or field.kind.keyword in _TEXTS
    return text if is_text else value_of(text)


def _given(value: Any, gives: str | None) -> Any:
    return value if gives is None else gives if value else None
