"""Adds the options of the plain fields and of the kinds of task to a command."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from mainspring.kinds.registry import KindOptions, Option, TaskKind, task_kinds
from mainspring.wire.fields import COUNT, DURATION, PLAIN_FIELDS, Field

Command = TypeVar("Command", bound=Callable[..., None])


def with_plain_options(*, after: str, panel: str) -> Callable[[Command], Command]:
    """A decorator for a command with `**plain`: adds an option for each plain field after the parameter `after`.

    Typer reads the signature of a command, so the options are added there.
    """
    return _with([_parameter(field, panel) for field in PLAIN_FIELDS], after)


def with_kind_options(*, after: str, of_a_worker: bool = False) -> Callable[[Command], Command]:
    """The same for the options of the kinds of task: those that describe a job, or those of a worker."""
    options = [part.of_a_worker if of_a_worker else part.of_a_job for _, part in kind_options()]
    return _with([_of_kind(option) for part in options for option in part], after)


@cache
def kind_options() -> tuple[tuple[TaskKind, KindOptions], ...]:
    return tuple((kind, kind.part("options").OPTIONS) for kind in task_kinds())


def check_kind_options(values: Mapping[str, Any]) -> list[Path]:
    """Check the options of a worker's kinds. Returns the files that its commands must not read."""
    checks = [part.check_worker for _, part in kind_options() if part.check_worker is not None]
    return [path for check in checks for path in check(values)]


def flags_of_kinds(values: Mapping[str, Any]) -> list[str]:
    """The options of a worker's kinds, checked, as arguments for the worker."""
    check_kind_options(values)
    argv: list[str] = []
    for _, part in kind_options():
        for option in part.of_a_worker:
            given = values.get(option.name)
            for value in given if isinstance(given, list) else [] if given is None else [given]:
                argv += [option.flag, value]
    return argv


def _with(added: Sequence[inspect.Parameter], after: str) -> Callable[[Command], Command]:
    def extend(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            parameters.append(parameter)
            if parameter.name == after:
                parameters.extend(added)
        # The parameters of a command stand before its `**plain`, which Typer must not see.
        visible = [parameter for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
        command.__signature__ = signature.replace(parameters=visible)  # type: ignore[attr-defined]
        return command

    return extend


def _of_kind(option: Option) -> inspect.Parameter:
    made = typer.Option(option.flag, metavar=option.metavar or None, help=option.help, rich_help_panel=option.panel)
    if option.switch:
        return inspect.Parameter(
            option.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=False, annotation=Annotated[bool, made]
        )
    kind: Any = list[str] if option.repeated else str
    return inspect.Parameter(
        option.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=Annotated[kind | None, made]
    )


def _parameter(field: Field, panel: str) -> inspect.Parameter:
    metavar = "D" if field.kind is DURATION else "N" if field.kind == COUNT else "TEXT"
    option = typer.Option(field.option, metavar=metavar, help=field.help, rich_help_panel=panel)
    kind: Any = int if field.kind is COUNT else str
    return inspect.Parameter(
        field.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=Annotated[kind | None, option]
    )
