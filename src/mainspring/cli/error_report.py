"""Reports errors of the command line: one or two lines on stderr, and an exit code for each class of error."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

import msgspec

from mainspring.cli.exit_codes import BAD_INPUT, CONFLICT, FAILURE, NOT_ALLOWED, NOT_FOUND, UNAVAILABLE
from mainspring.cli.hints import TOKEN_HINT, in_commands
from mainspring.cli.table import wrapped
from mainspring.cli.typed_options import detail_of
from mainspring.domain.errors import (
    Conflict,
    Forbidden,
    InvalidBatch,
    InvalidInput,
    MainspringError,
    NotFound,
    NotSupportedYet,
    PayloadTooLarge,
    Unauthorized,
    Unavailable,
    WrongMediaType,
)
from mainspring.kernel.terminal import visible, visible_json

_EXIT_CODES: tuple[tuple[type[MainspringError], int], ...] = (
    (InvalidInput, BAD_INPUT),
    (NotSupportedYet, BAD_INPUT),
    (PayloadTooLarge, BAD_INPUT),
    (WrongMediaType, BAD_INPUT),
    (NotFound, NOT_FOUND),
    (Conflict, CONFLICT),
    (Unauthorized, NOT_ALLOWED),
    (Forbidden, NOT_ALLOWED),
    (Unavailable, UNAVAILABLE),
)


_INDENTATION = 2


def exit_code_of(error: MainspringError) -> int:
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), FAILURE)


def report(error: MainspringError, *, as_json: bool, typed: Sequence[str] = ()) -> int:
    """Print the error on stderr and return the exit code. `typed`: the arguments of the command line."""
    text = _as_json(error) if as_json else "\n".join(_as_lines(error, typed))
    sys.stderr.write(text + "\n")
    return exit_code_of(error)


def _as_lines(error: MainspringError, typed: Sequence[str]) -> list[str]:
    lines = [f"error: {detail_of(error, typed)}"]
    advice = error.advice()
    if isinstance(error, Unauthorized) and not error.hint:
        advice.append(TOKEN_HINT)
    if advice:
        lines.append("hint: " + in_commands("; ".join(advice)))
    return [part for line in lines for part in _wrapped(" ".join(visible(line).split("\n")))]


def _wrapped(line: str) -> list[str]:
    """The line for a terminal. In a pipe or a file it stays whole, for grep."""
    if not sys.stderr.isatty():
        return [line]
    first, *others = wrapped(line, max(40, shutil.get_terminal_size().columns) - _INDENTATION)
    return [first, *(" " * _INDENTATION + other for other in others)]


def _as_json(error: MainspringError) -> str:
    problem = {
        "code": error.code,
        "detail": error.detail,
        "field": error.field,
        "expected": error.expected,
        "hint": error.hint,
        "errors": error.errors if isinstance(error, InvalidBatch) else None,
    }
    text = msgspec.json.encode({name: value for name, value in problem.items() if value is not None}).decode()
    return visible_json(text)
