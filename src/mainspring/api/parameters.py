"""Refuses unknown query parameters, and values that are given twice. The error for an unknown one names the most
similar known one."""

from __future__ import annotations

import difflib
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from litestar.constants import RESERVED_KWARGS
from litestar.params import HeaderParameter

from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.filters import PAYLOAD_PARAMETER

_LENIENT = "/schema"  # routes of the framework
_LONGEST_NAME = 100  # in a response


def check_parameters(scope: Any) -> None:
    """Raise InvalidInput if the query string contains a parameter that the handler does not take, or takes once."""
    if not scope["query_string"] or scope["path"].startswith(_LENIENT):
        return
    taken = _taken(scope["route_handler"])
    known = [name for name in taken if name not in scope["path_params"]]
    seen = set()
    for name, value in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True):
        if name.startswith(PAYLOAD_PARAMETER) and scope["route_handler"].opt.get("payload_keys"):
            if name in seen:
                raise InvalidInput(f"{name} is given twice", code="invalid_parameter", field=name, hint="give it once")
            seen.add(name)
            continue
        if name not in known:
            raise _unknown(name[:_LONGEST_NAME], known)
        if value.lower() == "null" and not taken[name].text:  # the framework would take it as not given
            raise InvalidInput(f"{name} is null", code="invalid_parameter", field=name, hint="leave it out")
        if name in seen and not taken[name].several:
            raise InvalidInput(f"{name} is given twice", code="invalid_parameter", field=name, hint="give it once")
        seen.add(name)


class _Kind(NamedTuple):
    """Whether a parameter is a list, and whether it is text or a list of texts."""

    several: bool
    text: bool


def _kind(field: Any) -> _Kind:
    parts = (field, *field.inner_types)
    several = any(part.is_non_string_sequence for part in parts)
    return _Kind(several, several or any(part.is_subclass_of(str) for part in parts))


@lru_cache(maxsize=1000)
def _taken(handler: Any) -> dict[str, _Kind]:
    """The parameters of the handler, including those of its path, but without headers."""
    return {
        getattr(field.kwarg_definition, "name", None) or name: _kind(field)
        for name, field in handler.parsed_fn_signature.parameters.items()
        if name not in RESERVED_KWARGS and not isinstance(field.kwarg_definition, HeaderParameter)
    }


def _unknown(name: str, known: list[str]) -> InvalidInput:
    near = difflib.get_close_matches(name[:_LONGEST_NAME], known, n=1, cutoff=0.6)
    if near:
        hint = f"did you mean {near[0]!r}?"
    else:
        hint = "known are: " + ", ".join(known) if known else "this route takes no parameters"
    return InvalidInput(f"unknown parameter {name!r}", code="unknown_parameter", field=name, hint=hint)
