"""Adds the options of the plain fields to a command."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

from mainspring.wire.fields import COUNT, DURATION, PLAIN_FIELDS, Field

Command = TypeVar("Command", bound=Callable[..., None])


def with_plain_options(*, after: str, panel: str) -> Callable[[Command], Command]:
    """A decorator for a command with `**plain`: adds an option for each plain field after the parameter `after`.

    Typer reads the signature of a command, so the options are added there.
    """

    def extend(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            if parameter.kind is not parameter.VAR_KEYWORD:
                parameters.append(parameter)
            if parameter.name == after:
                parameters.extend(_parameter(field, panel) for field in PLAIN_FIELDS)
        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return command

    return extend


def _parameter(field: Field, panel: str) -> inspect.Parameter:
    metavar = "D" if field.kind is DURATION else "N" if field.kind == COUNT else "TEXT"
    option = typer.Option(field.option, metavar=metavar, help=field.help, rich_help_panel=panel)
    kind: Any = int if field.kind is COUNT else str
    return inspect.Parameter(
        field.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=Annotated[kind | None, option]
    )
