"""A log line for a person: time, process, what happened, and its fields.

It has no traceback of local variables, which can contain tokens, and nothing in it controls the terminal.
"""

from __future__ import annotations

import traceback
from datetime import datetime
from typing import Any

from mainspring.kernel.terminal import visible, visible_line

Fields = dict[str, Any]

_ROLE_WIDTH = 9  # "scheduler"
_HIDDEN = ("module", "node", "level", "timestamp", "event", "role", "exc_info")
_COLOURS = {"debug": "2", "warning": "33", "error": "31"}
_LONGEST_VALUE = 200
_MARKED = ("warning", "error")
_MARK_WIDTH = len("warning:")


def traceback_text(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip("\n")


class TextLine:
    """Renders one line. Warnings are yellow and errors red; without colours a column says what they are."""

    def __init__(self, *, coloured: bool) -> None:
        self._coloured = coloured

    def __call__(self, line: Fields) -> str:
        level = line.get("level", "info")
        event = visible_line(str(line.get("event", "")))
        if self._coloured:
            event = self._paint(_COLOURS.get(level), event)
        else:
            mark = f"{level}:" if level in _MARKED else ""
            event = f"{mark:{_MARK_WIDTH}} {event}"
        fields = " ".join(f"{name}={_value(value)}" for name, value in line.items() if name not in _HIDDEN)
        parts = [_time(line.get("timestamp")), f"{line.get('role', '')!s:{_ROLE_WIDTH}}", event]
        if fields:
            parts.append(self._paint("2", fields))
        text = "  ".join(parts)
        error = line.get("exc_info")
        return f"{text}\n{visible(traceback_text(error))}" if isinstance(error, BaseException) else text

    def _paint(self, colour: str | None, text: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._coloured and colour else text


def _time(timestamp: object) -> str:
    """The time of day where the reader is."""
    return datetime.fromisoformat(str(timestamp)).astimezone().strftime("%H:%M:%S")


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value if isinstance(value, str) else str(value)
    if isinstance(value, str) and (not text or any(character.isspace() for character in text)):
        text = repr(text)
    shown = visible_line(text)
    return shown if len(shown) <= _LONGEST_VALUE else shown[: _LONGEST_VALUE - 1] + "\u2026"
