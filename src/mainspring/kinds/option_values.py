"""How options of the command line are read: `key=value`, and JSON or text."""

from __future__ import annotations

import re
from typing import Any

_MEANT_A_SECRET = re.compile(r"@secrets?\b|\{\s*\"\$secret\"")


def pair(text: str, field: str, example: str, mark: str = "=") -> tuple[str, str]:
    from mainspring.domain.errors import InvalidInput

    key, found, value = text.partition(mark)
    if not found or not key:
        raise InvalidInput(f"{text!r} is not key{mark}value", field=field, hint=f"such as {example}")
    return key, value


def secret_or_text(text: str, field: str) -> Any:
    """@secret:NAME stands for the value of a secret. What was meant so and is written otherwise is refused."""
    from mainspring.domain.errors import InvalidInput

    mark, _, name = text.partition(":")
    if mark == "@secret" and name:
        return {"$secret": name}
    if _MEANT_A_SECRET.match(text):
        raise InvalidInput(
            f"{text!r} is not the name of a secret", field=field, expected="@secret:NAME, such as @secret:db-password"
        )
    return text


def value_of(text: str) -> Any:
    """The value of valid JSON, and any other text as it is."""
    import msgspec

    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return text
