"""The types in the annotation of a field of an answer."""

from __future__ import annotations

from typing import Any, get_args


def types_in(annotation: Any) -> list[Any]:
    """The annotation and the types in it: of `list[RunView] | None` these are itself, `list[RunView]`, `RunView` and
    `NoneType`."""
    arguments = [one for one in get_args(annotation) if isinstance(one, type) or get_args(one) or one is Any]
    return [annotation, *(inner for one in arguments for inner in types_in(one))]
