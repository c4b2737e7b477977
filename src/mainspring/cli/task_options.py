"""What a job runs: the payload of a task, and the options of the kinds of task (kinds/), for a job and for a worker."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from mainspring.cli.option_values import object_of, pair_of
from mainspring.kinds.option_values import value_of
from mainspring.kinds.registry import KindOptions, Option, TaskKind, task_kinds

PayloadOption = Annotated[
    str | None, typer.Option("--payload", metavar="JSON", help="All parameters as one JSON object.")
]


def task_options() -> list[inspect.Parameter]:
    """The options that describe what a job runs."""
    payload = inspect.Parameter("payload", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=PayloadOption)
    return [payload, *(_parameter(option) for _, part in kind_options() for option in part.of_a_job)]


def worker_options() -> list[inspect.Parameter]:
    """The options that kinds add to a worker."""
    return [_parameter(option) for _, part in kind_options() for option in part.of_a_worker]


def task_values(typed: Mapping[str, Any], params: list[str]) -> dict[str, Any]:
    """The fields that the options describe. params: KEY=VALUE."""
    calls = {kind.field: part.call(typed) for kind, part in kind_options() if part.call is not None}
    return {**calls, "payload": payload_of(typed["payload"], params)}


def payload_of(text: str | None, params: list[str]) -> dict[str, Any] | None:
    """The payload from --payload or from key=value pairs."""
    from mainspring.domain.errors import InvalidInput

    if text is None:
        pairs = [_parameter_of(param) for param in params]
        return {key: value_of(value) for key, value in pairs} or None
    if params:
        raise InvalidInput("--payload and key=value cannot be combined", field="payload", hint="use one of them")
    return object_of(text, "payload", '{"region": "eu"}')


def _parameter_of(text: str) -> tuple[str, str]:
    from mainspring.domain.errors import InvalidInput

    if "=" not in text:
        raise InvalidInput(
            f"{text!r} is not key=value", field="payload",
            hint="a parameter of the task is such as name=you; a shell command is given with --command",
        )  # fmt: skip
    return pair_of(text, "payload")


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


def _parameter(option: Option) -> inspect.Parameter:
    made = typer.Option(option.flag, metavar=option.metavar or None, help=option.help, rich_help_panel=option.panel)
    kind: Any = list[str] if option.repeated else str
    annotation: Any = Annotated[bool, made] if option.switch else Annotated[kind | None, made]
    default = False if option.switch else None
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
