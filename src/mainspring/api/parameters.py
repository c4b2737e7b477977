"""Refuses unknown query parameters. The error names the parameter and the most similar known one."""

from __future__ import annotations

import difflib
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

from litestar.constants import RESERVED_KWARGS
from litestar.params import HeaderParameter

from mainspring.domain.errors import InvalidInput

_LENIENT = "/schema"  # routes of the framework
_LONGEST_NAME = 100  # in a response


def check_parameters(scope: Any) -> None:
    """Raise InvalidInput if the query string contains a parameter that the handler does not take."""
    if not scope["query_string"] or scope["path"].startswith(_LENIENT):
        return
    known = [name for name in _taken(scope["route_handler"]) if name not in scope["path_params"]]
    for name, _ in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True):
        if name not in known:
            raise _unknown(name[:_LONGEST_NAME], known)


@lru_cache(maxsize=1000)
def _taken(handler: Any) -> tuple[str, ...]:
    """The parameters of the handler, including those of its path, but without headers."""
    return tuple(
        name
        for name, field in handler.parsed_fn_signature.parameters.items()
        if name not in RESERVED_KWARGS and not isinstance(field.kwarg_definition, HeaderParameter)
    )


def _unknown(name: str, known: list[str]) -> InvalidInput:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if near:
        hint = f"did you mean {near[0]!r}?"
    else:
        hint = "known are: " + ", ".join(known) if known else "this route takes no parameters"
    return InvalidInput(f"unknown parameter {name!r}", code="unknown_parameter", field=name, hint=hint)
