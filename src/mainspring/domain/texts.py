"""Text that people choose: what may be stored, and shown on a terminal without surprises."""

from __future__ import annotations

import re

from mainspring.domain.errors import InvalidInput

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")
_SHOWN = 60


def check_line(text: str, field: str) -> None:
    """Refuse `text` unless it is one line without control characters: names, keys, labels."""
    # isprintable() is quick and says no to a few good ones too (the joiners in emoji), so it is not the last word.
    if not text.isprintable() and _CONTROL.search(text):
        raise InvalidInput(
            f"{field} holds a control character or half a surrogate pair",
            field=field,
            expected="one line of plain text",
        )


def check_prose(text: str, field: str) -> None:
    """Refuse `text` unless PostgreSQL can store it: descriptions and commands, which may have many lines."""
    if not text.isprintable() and _UNSTORABLE.search(text):
        raise InvalidInput(
            f"{field} holds the character NUL or half a surrogate pair", field=field, expected="plain text"
        )


def shown(value: object) -> str:
    """`value` as it may stand in a message: quoted, and cut when it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
