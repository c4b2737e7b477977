"""Words for a command line that cannot be read: an option that is missing, a word too many, a value of another type."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_NUMBER = re.compile(r"(?P<value>'.*') is not a valid (?P<kind>int|integer|float)(?: range)?\.", re.DOTALL)
_RANGE = re.compile(r"(?P<value>\S+) is not in the range (?P<range>.+)\.")
_TOO_MANY = re.compile(r"Got unexpected extra arguments?(?:\(s\))? \((?P<words>.*)\)", re.DOTALL)
_MISSING = re.compile(r"Missing (?:argument|option|parameter)\b")
_EXAMPLE = re.compile(r"^  (mainspring .+)$", re.MULTILINE)
_MOST_OPTIONS = 12
_EVERYWHERE = {
    "help",
    "config",
    "data",
    "url",
    "token_file",
    "server",
    "ca",
    "insecure_http",
    "utc",
    "full_ids",
}


def in_other_words(error: Exception, message: str, context: Any) -> tuple[str, str | None]:
    """The message of an error in our words, and what to type instead."""
    said = str(getattr(error, "message", None) or message)
    opts: Sequence[str] = getattr(getattr(error, "param", None), "opts", ())
    name = next((opt for opt in opts if opt.startswith("--")), None)
    if name is not None and (number := _NUMBER.fullmatch(said)):
        return f"{name}: {number['value']} is not a {'' if number['kind'] == 'float' else 'whole '}number", None
    if name is not None and (bounds := _RANGE.fullmatch(said)):
        return f"{name}: {bounds['value']} is out of range", f"expected {_bounds(bounds['range'])};"
    if too_many := _TOO_MANY.fullmatch(message):
        return f"too many words: {too_many['words']}", _example(context)
    if _MISSING.match(message):
        return message, _example(context)
    return message, None


def _bounds(text: str) -> str:
    """`1<=x<=100` and `x>=0` in words."""
    both = re.fullmatch(r"(\S+)<=x<=(\S+)", text)
    if both:
        return f"{both[1]} to {both[2]}"
    return text.replace("x>=", "at least ").replace("x<=", "at most ")


def _example(context: Any) -> str | None:
    """The first example of the help."""
    found = _EXAMPLE.search(getattr(getattr(context, "command", None), "epilog", None) or "")
    return None if found is None else "such as `{}`;".format(found[1].replace("\\[", "["))


def own_options(params: Sequence[Any]) -> str | None:
    """The options of a command that has few, for one that is not alike any of them."""
    names = [
        next(opt for opt in one.opts if opt.startswith("--"))
        for one in params
        if one.param_type_name == "option" and one.name not in _EVERYWHERE and not one.hidden
        if any(opt.startswith("--") for opt in one.opts)
    ]
    return f"its options are {', '.join(names)};" if 0 < len(names) <= _MOST_OPTIONS else None
