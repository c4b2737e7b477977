"""Refuses unknown query parameters, and values that are given twice. The error for an unknown one names the most
similar known one."""

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
    """Raise InvalidInput if the query string contains a parameter that the handler does not take, or takes once."""
    if not scope["query_string"] or scope["path"].startswith(_LENIENT):
        return
    taken = _taken(scope["route_handler"])
    known = [name for name in taken if name not in scope["path_params"]]
    seen = set()
    for name, _ in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True):
        if name not in known:
            raise _unknown(name[:_LONGEST_NAME], known)
        if name in seen and not taken[name]:
            raise InvalidInput(f"{name} is given twice", code="invalid_parameter", field=name, hint="give it once")
        seen.add(name)


@lru_cache(maxsize=1000)
def _taken(handler: Any) -> dict[str, bool]:
    """The parameters of the handler, including those of its path, but without headers. And whether each is a list."""
    return {
        name: any(field.is_non_string_sequence for field in (field, *field.inner_types))
        for name, field in handler.parsed_fn_signature.parameters.items()
        if name not in RESERVED_KWARGS and not isinstance(field.kwarg_definition, HeaderParameter)
    }


def _unknown(name: str, known: list[str]) -> InvalidInput:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if near:
        hint = f"did you mean {near[0]!r}?"
    else:
        hint = "known are: " + ", ".join(known) if known else "this route takes no parameters"
    return InvalidInput(f"unknown parameter {name!r}", code="unknown_parameter", field=name, hint=hint)
