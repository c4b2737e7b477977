"""Searches a log for a text, without regard to case. One search reads a bounded part of the log and says how far it
got; the next one continues there."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple, Protocol

from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.logs.log_bytes import Bytes
from mainspring.wire.logs import LogMatch

MOST_BYTES = 16 * 1024 * 1024  # that one search reads
_SECTION = 128 * 1024  # the event loop has others to serve after so many bytes
_LONGEST_LINE = 64 * 1024  # a longer line is searched in parts
_SHOWN, _SHOWN_BEFORE = 1000, 200  # bytes of a long line, and of these before the match


class WantedText(Protocol):
    """What a search looks for. `longest`: no match has more bytes. `slow`: it is looked for in a thread."""

    slow: bool
    longest: int

    def lines(self, data: bytes) -> Iterator[int]:
        """Where the first match of each line is."""


class LogSource(Protocol):
    def read(self, folder: str, start: int, end: int) -> AsyncIterator[Bytes]: ...


class Needle:
    """A text to search for in bytes of UTF-8. A character matches its upper and lower case."""

    slow = False

    def __init__(self, text: str) -> None:
        self._plain = text.lower().encode() if text.isascii() else None
        self._pattern = re.compile(b"".join(map(_either_case, text)))
        # No match has more bytes than this: a character of another case can be longer.
        self.longest = sum(max(map(len, _cases(character))) for character in text)

    def lines(self, data: bytes) -> Iterator[int]:
        """Where the first match of each line is. For ASCII this is ten times as fast as a pattern."""
        lowered = data.lower() if self._plain is not None else b""
        start = 0
        while (at := self._find(data, lowered, start)) >= 0:
            yield at
            start = data.find(b"\n", at) + 1
            if not start:
                return

    def places(self, data: bytes) -> Iterator[int]:
        """Where the matches are, all of them."""
        lowered = data.lower() if self._plain is not None else b""
        at = -1
        while (at := self._find(data, lowered, at + 1)) >= 0:
            yield at

    def _find(self, data: bytes, lowered: bytes, start: int) -> int:
        if self._plain is not None:
            return lowered.find(self._plain, start)
        found = self._pattern.search(data, start)
        return -1 if found is None else found.start()


class Searched(NamedTuple):
    """more: there is output that was not searched, or matches that were not returned."""

    matches: list[LogMatch]
    to: int
    more: bool


class LogSearch:
    """One search of the bytes from `start` to `size`."""

    def __init__(self, needle: WantedText, start: int, size: int, limit: int, *, ended: bool) -> None:
        self._needle = needle
        self._size = size
        self._limit = limit
        self._ended = ended
        self._matches: list[LogMatch] = []
        self._at = start
        self._rest = b""  # what begins at `_at` and was not searched yet
        self._slices = TimeSlices()

    async def run(self, log: LogSource, folder: str) -> Searched:
        stop = min(self._size, self._at + MOST_BYTES)
        async for piece in log.read(folder, self._at, stop):
            if self._at + len(self._rest) + len(piece.data) != piece.end:  # a line in place of missing bytes
                self._at, self._rest = piece.end, b""
                continue
            if await self._search_lines(piece.data):
                return Searched(self._matches, self._at, more=self._at < self._size)
        if stop < self._size:
            return Searched(self._matches, self._at, more=True)
        over = await self._look(self._rest, len(self._rest))
        if self._ended and not over:
            self._at = self._size
        return Searched(self._matches, self._at, more=over and self._at < self._size)

    async def _search_lines(self, data: bytes) -> bool:
        """Search the lines that are complete now. True if there are enough matches."""
        data = self._rest + data
        done = 0
        while (end := self._section_end(data, done)) > done:
            beyond = 0 if data[end - 1 : end] == b"\n" else self._needle.longest - 1
            if await self._look(data[done : end + beyond], end - done):
                return True
            self._at += end - done
            done = end
            if self._slices.over:
                await self._slices.pause()
        self._rest = data[done:]
        return False

    def _section_end(self, data: bytes, start: int) -> int:
        end = data.rfind(b"\n", start, start + _SECTION) + 1
        if end:
            return end
        if len(data) - start > _LONGEST_LINE + self._needle.longest:
            return start + _LONGEST_LINE
        return start

    async def _look(self, data: bytes, size: int) -> bool:
        return await asyncio.to_thread(self._search, data, size) if self._needle.slow else self._search(data, size)

    def _search(self, data: bytes, size: int) -> bool:
        """Add the matches that begin in the first `size` bytes of `data`, which begins at `_at`. If there are enough,
        `_at` is where to continue."""
        for at in self._needle.lines(data):
            if at >= size:  # it is found in the next part of the line
                break
            start, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
            line_end = len(data) if end < 0 else end
            self._matches.append(LogMatch(self._at + start, self._at + at, _shown(data, start, at, line_end)))
            if len(self._matches) == self._limit:
                self._at += size if end < 0 else end + 1
                return True
        return False


def _shown(data: bytes, start: int, at: int, end: int) -> str:
    if end - start > _SHOWN:
        start = max(start, min(at - _SHOWN_BEFORE, end - _SHOWN))
    return data[start : min(end, start + _SHOWN)].rstrip(b"\r").decode("utf-8", "replace")


def _cases(character: str) -> list[bytes]:
    found = {character, *(case for case in (character.lower(), character.upper()) if len(case) == 1)}
    return sorted(case.encode() for case in found)


def _either_case(character: str) -> bytes:
    return b"(?:" + b"|".join(map(re.escape, _cases(character))) + b")"
