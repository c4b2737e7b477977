"""Values as JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from mainspring.domain.errors import InvalidInput


def encode(value: Any) -> bytes:
    """`value` as JSON. Supports dataclasses, datetimes, UUIDs and sets."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, msgspec.MsgspecError) as error:
        raise InvalidInput(
            f"the value cannot be encoded as JSON: {error}",
            code="not_json",
            field=_not_json(value, "") or None,
            hint="use numbers, strings, lists, dicts, dataclasses, datetimes or UUIDs",
        ) from None


def _not_json(value: Any, path: str) -> str:
    """The path of the first value inside that cannot be encoded."""
    inner: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        inner = [(f"{path}.{name}" if path else str(name), one) for name, one in value.items()]
    elif isinstance(value, list | tuple):
        inner = [(f"{path}[{index}]", one) for index, one in enumerate(value)]
    for where, one in inner:
        try:
            msgspec.json.encode(one)
        except (TypeError, msgspec.MsgspecError):
            return _not_json(one, where)
    return path
