"""JSON that a user has typed or written into a file."""

from __future__ import annotations

import re
from typing import Any

_BYTE = re.compile(r" \(byte (\d+)\)$")
_NOT_IN_JSON = "JSON has no comments, no trailing commas and no single quotes"
_KINDS = {list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number", type(None): "null"}


def object_in(text: str, what: str, field: str, example: str | None = None) -> dict[str, Any]:
    """The object of a JSON text. Raises InvalidInput, which says where the text is no JSON. `what`: the text, in a
    message."""
    import msgspec

    from mainspring.domain.errors import InvalidInput

    such = None if example is None else f"such as '{example}'"
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        hint = _NOT_IN_JSON if such is None else f"{such}; {_NOT_IN_JSON}"
        raise InvalidInput(f"{what} is not JSON: {_with_place(str(error), text)}", field=field, hint=hint) from None
    if not isinstance(found, dict):
        raise InvalidInput(
            f"{what} is {_KINDS[type(found)]}, not a JSON object", field=field,
            hint=such or 'write {"name": value, ...}',
        )  # fmt: skip
    return found


def _with_place(said: str, text: str) -> str:
    """What the decoder said, with line and column in place of a byte."""
    words = said.removeprefix("JSON is malformed: ")
    place = _BYTE.search(words)
    if place is None:
        return words
    before = text.encode(errors="replace")[: int(place[1])].decode(errors="replace")
    lines = before.split("\n")
    line = f"line {len(lines)}, " if "\n" in text.strip() else ""
    return f"{words[: place.start()]} ({line}column {len(lines[-1]) + 1})"
