"""How options of the command line are read: `key=value`, and JSON or text."""

from __future__ import annotations

from typing import Any


def pair(text: str, field: str, example: str, mark: str = "=") -> tuple[str, str]:
    from mainspring.domain.errors import InvalidInput

    key, found, value = text.partition(mark)
    if not found or not key:
        raise InvalidInput(f"{text!r} is not key{mark}value", field=field, hint=f"such as {example}")
    return key, value


def value_of(text: str) -> Any:
    """The value of valid JSON, and any other text as it is."""
    import msgspec

    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return text
