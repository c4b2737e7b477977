"""Short ids: the last characters of a UUID. A UUIDv7 begins with the time, so ids of one moment begin alike."""

from __future__ import annotations

import re
from collections.abc import Iterable

SHORT = 8  # of 100,000 random ids, another one has the same ending with a probability of one in 43,000
_UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


class ShortIds:
    """The endings of the UUIDs in `texts`: 8 characters, or as many as tell them apart."""

    def __init__(self, texts: Iterable[str]) -> None:
        uuids = {uuid for text in texts for uuid in _UUID.findall(text)}
        self.length = SHORT
        while len({uuid[-self.length :] for uuid in uuids}) < len(uuids):
            self.length += 1

    def shorten(self, text: str) -> str:
        """The text with the endings of its UUIDs."""
        return _UUID.sub(lambda found: found[0][-self.length :], text)
