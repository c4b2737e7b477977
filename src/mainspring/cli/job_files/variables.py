"""Variables of job files: `${{ region }}` in a text. A text that is nothing but a variable has its value, whatever that
is. `$${{` stands for `${{` itself. Shells do not use this form, so a command stays as it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

_REFERENCE = re.compile(r"(\$)?\$\{\{(?:\s*([A-Za-z_][A-Za-z0-9_.-]*)\s*\}\})?")
_MARK = "${{"


class UnknownVariable(Exception):
    """The text has a variable that is not declared, or one without a value, or a `${{` that is not closed."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def escaped(value: Any) -> Any:
    """The value as a file writes it, so that nothing in it is taken for a variable."""
    if isinstance(value, str):
        return value.replace(_MARK, "$" + _MARK)
    if isinstance(value, dict):
        return {name: escaped(one) for name, one in value.items()}
    return [escaped(one) for one in value] if isinstance(value, list) else value


def filled(value: Any, variables: Mapping[str, Any], wrong: Callable[[list[str | int], str], Exception]) -> Any:
    """The value with all variables filled in. `wrong` makes the error for a variable that is unknown, from its path
    and its name."""

    def fill(one: Any, path: list[str | int]) -> Any:
        if isinstance(one, str):
            try:
                return filled_text(one, variables)
            except UnknownVariable as unknown:
                raise wrong(path, unknown.name) from None
        if isinstance(one, dict):
            return {name: fill(member, [*path, name]) for name, member in one.items()}
        if isinstance(one, list):
            return [fill(member, [*path, index]) for index, member in enumerate(one)]
        return one

    return fill(value, [])


def filled_text(text: str, variables: Mapping[str, Any]) -> Any:
    """Raises UnknownVariable."""
    if _MARK not in text:
        return text
    whole = _REFERENCE.fullmatch(text)
    if whole is not None and not whole[1]:
        return _value(whole[2], variables)

    def replaced(found: re.Match[str]) -> str:
        if found[1]:
            return found[0][1:]
        value = _value(found[2], variables)
        return value if isinstance(value, str) else _as_text(value)

    return _REFERENCE.sub(replaced, text)


def _value(name: str | None, variables: Mapping[str, Any]) -> Any:
    if name is None or variables.get(name) is None:
        raise UnknownVariable(name or "")
    return variables[name]


def _as_text(value: Any) -> str:
    import json

    return json.dumps(value)
