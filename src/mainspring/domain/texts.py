"""Checks texts that users choose: PostgreSQL must be able to store them, and a terminal must be able to show them."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from difflib import get_close_matches

from mainspring.domain.errors import InvalidInput

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")
_SHOWN = 60
_COMPARED = 2000  # known names; to compare more takes too long
_LONGEST_COMPARED = 200  # characters of an unknown name; no known one is so long, and to compare a megabyte takes 0.3 s


def check_line(text: str, field: str) -> None:
    """Raise InvalidInput unless `text` is one line without control characters. For names, keys and labels."""
    # isprintable() is fast, but it also rejects some valid characters, such as the joiners in emoji.
    if not text.isprintable() and _CONTROL.search(text):
        raise InvalidInput(
            f"{field} contains a control character or half a surrogate pair",
            field=field,
            expected="one line of plain text",
        )


def check_prose(text: str, field: str) -> None:
    """Raise InvalidInput unless PostgreSQL can store `text`. For descriptions and commands with several lines."""
    if not text.isprintable() and _UNSTORABLE.search(text):
        raise InvalidInput(
            f"{field} contains the character NUL or half a surrogate pair", field=field, expected="plain text"
        )


def shown(value: object) -> str:
    """`value` for use in a message: quoted, and shortened if it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def meant(name: str, known: Collection[str], otherwise: str) -> str:
    """A hint for a name that is unknown: the known one that is spelt alike, or what is said otherwise."""
    comparable = len(known) <= _COMPARED and len(name) <= _LONGEST_COMPARED
    near = get_close_matches(name, known, n=1, cutoff=0.6) if comparable else []
    return f"did you mean {shown(near[0])}?" if near else otherwise


def read_word(given: str, field: str, words: Sequence[str]) -> str:
    """A word of these, in lower case. Raises InvalidInput."""
    if given.lower() not in words:
        raise InvalidInput(f"{shown(given)} is not a value of {field}", field=field, expected=", ".join(words))
    return given.lower()


def sentence(text: str) -> str:
    """The text with a capital letter and a full stop, unless it ends with a question mark."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('?') else '.'}"
