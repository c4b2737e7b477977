"""Which words a chunk of output contains, as three bytes for each, and which words a search needs.

A word is a run of ASCII letters, digits and underscores, in lower case. Its bytes are the lower three of its CRC-32.
A chunk can seem to have a word that it does not have, about once in ten thousand times for one of 10 kB, and never the
other way round. SQL compares them (store/sql/log_search.sql).

A code of a terminal, such as that of a colour, ends in a letter. A word right after it begins there.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterable
from zlib import crc32

MOST_INDEXED = 16 * 1024  # bytes of a chunk: of a larger one, finding the words costs more than it saves
MOST_ASKED = 4  # words of a search: more of them leave out hardly more chunks
_WORD = re.compile(r"[a-z0-9_]+")
_CODE = rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[()][0-9A-Za-z])"  # of ECMA-48, and of a character set
_AFTER_CODE = re.compile(_CODE + rb"([0-9A-Za-z_]+)")
_ENDS_IN_CODE = re.compile(_CODE + rb"\Z")
_LONGEST_CODE = 40
_IN_WORDS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")
_SEPARATED = bytes(code if code in _IN_WORDS else ord(" ") for code in range(256)).lower()
# A character of a regular expression that stands for itself; what stands for any character or a place; what repeats.
_PART = re.compile(
    r"(?P<one>\\[^A-Za-z0-9]|[^\\.^$*+?()\[\]{}|])|(?P<any>[.^$]|\\[dDwWsSbB]|\[\^?\]?(?:\\.|[^\]\\\[])*\])|(?P<often>[*+?]+)",
    re.DOTALL,
)


def words_in(data: bytes) -> bytes | None:
    """The words of a chunk. None if they are not known: it is large, or ends within a line, whose last word may go on
    in the next chunk."""
    if len(data) > MOST_INDEXED or not data.endswith(b"\n"):
        return None
    words = set(data.translate(_SEPARATED).split())
    if b"\x1b" in data:
        words.update(word.lower() for word in _AFTER_CODE.findall(data))
    codes = array("I", map(crc32, words))
    if sys.byteorder == "big":
        codes.byteswap()
    found = bytearray(codes.tobytes())
    del found[3::4]
    return bytes(found)


def follows_code(data: bytes, at: int) -> bool:
    """Whether a code of a terminal ends where the byte `at` begins."""
    return _ENDS_IN_CODE.search(data[max(0, at - _LONGEST_CODE) : at]) is not None


def asked(words: Iterable[str]) -> list[bytes] | None:
    """Three bytes for each of the words that a chunk must have: the longest, which are the rarest. None without words:
    any chunk may match."""
    chosen = sorted(set(words), key=lambda word: (-len(word), word))[:MOST_ASKED]
    return [crc32(word.encode()).to_bytes(4, "little")[:3] for word in chosen] or None


def words_of(text: str) -> list[str]:
    """The words of a text whose ends are ends of words. Those beside letters of other alphabets are left out."""
    return [word for part in text.split() if part.isascii() for word in _WORD.findall(part.lower())]


def words_of_pattern(pattern: str) -> list[str]:
    """Words that all that matches a regular expression contains, as far as that is easy to see: those between
    characters that are no part of a word. None of a pattern with groups and alternatives."""
    found, text, at = list[str](), "", 0
    while at < len(pattern):
        part = _PART.match(pattern, at)
        if part is None:
            return []
        at = part.end()
        if part["one"] is not None:
            text += part["one"][-1]
            continue
        if part["often"] is not None:
            text = text if part["often"].startswith("+") else text[:-1]
        found += _inner_words(text)
        text = ""
    return found + _inner_words(text)


def _inner_words(text: str) -> list[str]:
    """The words that do not touch an end of the text, where a longer word may go on."""
    if not text.isascii():
        return []
    lowered = text.lower()
    return [word[0] for word in _WORD.finditer(lowered) if word.start() > 0 and word.end() < len(lowered)]
