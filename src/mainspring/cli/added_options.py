"""Adds options to a command that are not written in its signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TypeVar

Command = TypeVar("Command", bound=Callable[..., None])


def with_options(options: Iterable[inspect.Parameter], *, after: str) -> Callable[[Command], Command]:
    """A decorator for a command with `**options`: adds these options after the parameter `after`.

    Typer reads the signature of a command, so the options are added there.
    """

    def extend(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            if parameter.kind is not parameter.VAR_KEYWORD:
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            if parameter.name == after:
                parameters.extend(options)
        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return command

    return extend
