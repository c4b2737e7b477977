"""Fingerprints: errors that differ only in numbers, ids, quoted words and paths are the same failure."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

_LONGEST = 200
_QUOTES = "'\"`“«"
_QUOTED = re.compile(r"""'[^'\n]*'|"[^"\n]*"|`[^`\n]*`|“[^”\n]*”|«[^»\n]*»""")
_VARIABLE = re.compile(r"[\d/\\]")
_PARTS = re.compile(
    r"""
      (?P<url>(?<![a-z0-9+.-])[a-z][a-z0-9+.-]*://.+)
    | (?P<path>(?<![\w/])(?:~|\.{1,2}|[A-Za-z]:)?[/\\][\w.@+-]+(?:[/\\][\w.@+-]+)*[/\\]?)
    | (?P<id>(?<!\w)(?:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|0x[0-9a-f]+
              |(?=[a-f]*\d)[0-9a-f]{8,})(?!\w))
    | (?P<number>\d+(?:[.,:]\d+)*(?:e[+-]?\d+)?)
    """,
    re.VERBOSE | re.IGNORECASE,
)
_MASKS = {"url": "<url>", "path": "<path>", "id": "<id>", "number": "#"}


def first_line(error: str) -> str:
    """The first line of an error that says something."""
    return next((line.strip() for line in error.splitlines() if line.strip()), "")[:_LONGEST]


def masked(error: str) -> str:
    """The first line of an error, without what differs from one time to the next."""
    line = first_line(error)
    if any(quote in line for quote in _QUOTES):
        line = _QUOTED.sub("'…'", line)
    return " ".join([_masked_word(word) if _VARIABLE.search(word) else word for word in line.split(" ")])


@lru_cache(maxsize=4096)
def _masked_word(word: str) -> str:
    return _PARTS.sub(lambda found: _MASKS[found.lastgroup or "number"], word)


def fingerprint(task: str, title: str) -> str:
    """Names the failures of a task whose masked errors are equal."""
    return hashlib.blake2b(f"{task}\n{title}".encode(errors="surrogatepass"), digest_size=8).hexdigest()
