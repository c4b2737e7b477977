"""Reads some lines of a log: from a byte on, before a byte, or the last ones. It reads one block, however large the log
is, so the end of 100 MB is there as soon as the end of 1 kB."""

from __future__ import annotations

import codecs
from typing import NamedTuple

from mainspring.operations.logs.log_bytes import LogBytes

BLOCK_BYTES = 256 * 1024
_MOST_COUNTED = 16 * 1024 * 1024
_BACK = 64 * 1024  # how far before `start` the beginning of its line is searched
_LONGEST_CHARACTER = 4


class LogLines(NamedTuple):
    """The bytes from `start` to `end`, as text."""

    start: int
    end: int
    text: str


async def lines_from(log: LogBytes, folder: str, size: int, start: int, most: int) -> LogLines:
    """At most `most` lines, from the one that contains the byte `start` on."""
    start = min(start, size)
    low, high = max(0, start - _BACK), min(size, start + BLOCK_BYTES)
    data = await _read(log, folder, low, high)
    if len(data) != high - low:  # bytes are missing from the store, and a line says so
        return LogLines(low, high, _text(data))
    begin = data.rfind(b"\n", 0, start - low) + 1
    if not begin and low:
        begin = _next_character(data, start - low)
    end = begin
    for _ in range(most):
        line_end = data.find(b"\n", end) + 1
        if not line_end:
            if high == size:
                end = len(data)
            elif end == begin:  # a line that is longer than a block
                end = whole_characters(data)
            break
        end = line_end
    return LogLines(low + begin, low + end, _text(data[begin:end]))


async def lines_before(log: LogBytes, folder: str, before: int, most: int) -> LogLines:
    """At most `most` lines that end before the byte `before`."""
    low = max(0, before - BLOCK_BYTES)
    data = await _read(log, folder, low, before)
    if len(data) != before - low:
        return LogLines(low, before, _text(data))
    begin = len(data)
    for _ in range(most):
        # The line break at the end of a line belongs to it.
        line_start = data.rfind(b"\n", 0, max(0, begin - 1)) + 1
        if not line_start:
            if not low:
                begin = 0
            elif begin == len(data):  # a line that is longer than a block
                begin = _next_character(data, 0)
            break
        begin = line_start
    return LogLines(low + begin, before, _text(data[begin:]))


async def number_of_line(log: LogBytes, folder: str, start: int) -> int | None:
    """The number of the line that begins at `start`. None if it would take too long to count."""
    if start > _MOST_COUNTED:
        return None
    count = 1
    async for piece in log.read(folder, 0, start):
        count += piece.data.count(b"\n")
    return count


async def _read(log: LogBytes, folder: str, start: int, end: int) -> bytes:
    return b"".join([piece.data async for piece in log.read(folder, start, end)])


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _next_character(data: bytes, at: int) -> int:
    """Where a character begins, at `at` or a few bytes after it."""
    for place in range(at, min(at + _LONGEST_CHARACTER, len(data))):
        if data[place] & 0xC0 != 0x80:  # it does not continue a character of UTF-8
            return place
    return at


def whole_characters(data: bytes) -> int:
    """How many bytes there are without an incomplete character at the end."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data[-_LONGEST_CHARACTER:])
    return len(data) - len(decoder.getstate()[0])
