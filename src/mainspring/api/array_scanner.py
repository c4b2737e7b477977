"""Finds the elements of a large JSON array without building them, in slices, and stops at the first one too many.

The decoder reads a body in one go: 60 MB of `[{},{},...]` took 10 s and 6.4 GB. Here it is given a window that begins
with one element and builds nothing. It then complains about what follows the element, and says at which byte: that is
where the element ends.

Most arrays have elements that begin alike. There the decoder is given many elements at a time: up to the last place in
a window that looks like the border of two. If that is not a border, the scanner says so, and the elements are scanned
one by one.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import msgspec

from mainspring.kernel.time_slices import TimeSlices

_skip_one = msgspec.json.Decoder(msgspec.Raw).decode
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_split = msgspec.json.Decoder(list[msgspec.Raw]).decode
_WINDOW = 64 * 1024  # bytes
_ALIKE = 9  # bytes behind the comma between two elements
_MOST_MISSES = 10  # powers of two
_SPACE = re.compile(rb"[ \t\r\n]*+")


class ElementTooLarge(Exception):
    """The element `index` has more bytes than are scanned."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


class ArrayScanner:
    """The array that begins at `start` of `body`; `end` is the place behind it, once all elements were given."""

    def __init__(self, body: bytes, start: int, longest: int, slices: TimeSlices) -> None:
        self._body = body
        self._view = memoryview(body)
        self._longest = longest
        self._slices = slices
        self._misses = 0
        self._next_try = 0  # the index from which on several elements are tried
        self.end = start

    async def elements(self) -> AsyncIterator[bytes]:
        """Each element's own bytes. Raises msgspec.DecodeError, RecursionError or ElementTooLarge."""
        body, place, index = self._body, self.end + 1, 0
        if body[self.end : place] != b"[":
            raise msgspec.ValidationError("Expected `array`")
        first = self._behind_space(place)
        if body[first : first + 1] == b"]":
            self.end = first + 1
            return
        while True:
            stop = self._behind_element(place, index)
            yield body[place:stop]
            separator = body[stop : stop + 1]
            place = stop + 1
            if separator == b"]":
                self.end = place
                return
            if separator != b",":
                raise msgspec.DecodeError(f"JSON is malformed: expected ',' or ']' (byte {stop})")
            index += 1
            several, next_place = self._several(place, body[stop - 1 : place + _ALIKE], index)
            for one in several:
                yield bytes(memoryview(one))
            place, index = next_place, index + len(several)
            if self._slices.over:
                await self._slices.pause()

    def _several(self, place: int, border: bytes, index: int) -> tuple[list[msgspec.Raw], int]:
        """The elements up to the last place that looks like this border, and where the next one begins. None if it is
        no border: then more and more elements are scanned before the next try."""
        end = self._body.rfind(border, place, place + min(_WINDOW, self._longest)) if index >= self._next_try else -1
        if end < 0:
            return [], place
        try:
            found = _split(b"[" + self._body[place : end + 1] + b"]")
        except (msgspec.DecodeError, RecursionError):
            self._misses = min(self._misses + 1, _MOST_MISSES)
            self._next_try = index + 2**self._misses
            return [], place
        self._misses = 0
        return found, end + 2

    def _behind_element(self, place: int, index: int) -> int:
        limit = place + self._longest + 1
        try:
            _skip_one(self._view[place:limit])
        except msgspec.DecodeError as error:
            if found := _TRAILING.search(str(error)):
                return place + int(found[1]) - 1  # it counts the byte that it complains about
            if limit < len(self._body) and "truncated" in str(error):
                raise ElementTooLarge(index) from None
            raise
        if limit < len(self._body):
            raise ElementTooLarge(index)
        raise msgspec.DecodeError("Input data was truncated")

    def _behind_space(self, place: int) -> int:
        space = _SPACE.match(self._body, place, place + self._longest)
        return place if space is None else space.end()
