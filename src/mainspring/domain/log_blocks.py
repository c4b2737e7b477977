"""The words of a block of chunks, as a search reads them: by their first byte, the other two bytes of each. Words are
three bytes, as those of chunks (domain/log_words.py).

Two bytes that stand across two words are taken for a word too. So a block may seem to have a word that it does not
have, and never the other way round.
"""

from __future__ import annotations

from array import array

_FIRST_BYTES = 256


class BlockWords:
    """The words of chunks, chunk after chunk."""

    def __init__(self) -> None:
        self._by_first = [set[int]() for _ in range(_FIRST_BYTES)]

    def add(self, words: bytes) -> None:
        """Add the words of a chunk."""
        rest = bytearray(len(words) // 3 * 2)
        rest[0::2], rest[1::2] = words[1::3], words[2::3]
        by_first = self._by_first
        for first, two in zip(words[0::3], array("H", bytes(rest)), strict=True):
            by_first[first].add(two)

    def rows(self) -> list[bytes]:
        """For each first byte the other two of its words."""
        return [array("H", some).tobytes() for some in self._by_first]


def split(word: bytes) -> tuple[int, bytes]:
    """Which row of a block says whether it has this word, and what is looked for there."""
    return word[0], word[1:]
