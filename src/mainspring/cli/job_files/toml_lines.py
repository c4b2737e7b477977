"""Where the names of a TOML file are. The parser of the standard library does not say it, so the lines are searched."""

from __future__ import annotations

import re
from collections.abc import Sequence

_HEADER = re.compile(r"^\s*\[\[?\s*(.+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"^\s*((?:\"[^\"]*\"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:\"[^\"]*\"|'[^']*'|[A-Za-z0-9_-]+))*)\s*=")
_PART = re.compile(r"\"([^\"]*)\"|'([^']*)'|([A-Za-z0-9_-]+)")


class TomlLines:
    """The lines of a TOML text by path."""

    def __init__(self, text: str) -> None:
        self._lines: dict[tuple[str, ...], int] = {}
        table: tuple[str, ...] = ()
        for number, line in enumerate(text.splitlines(), 1):
            if header := _HEADER.match(line):
                table = _parts(header[1])
                self._note(table, number)
            elif key := _KEY.match(line):
                self._note((*table, *_parts(key[1])), number)

    def _note(self, path: tuple[str, ...], number: int) -> None:
        for length in range(1, len(path) + 1):
            self._lines.setdefault(path[:length], number)

    def line_of(self, path: Sequence[str | int]) -> int:
        """The line of what lies at the path, or of the last of it that was found."""
        names = tuple(part for part in path if isinstance(part, str))
        for length in range(len(names), 0, -1):
            if names[:length] in self._lines:
                return self._lines[names[:length]]
        return 1


def _parts(text: str) -> tuple[str, ...]:
    return tuple(next(one for one in found if one) if any(found) else "" for found in _PART.findall(text))
