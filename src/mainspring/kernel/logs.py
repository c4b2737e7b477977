"""Structured logs: one JSON object per line, or coloured key=value pairs on a terminal.

The format is that of structlog. structlog itself is only loaded on a terminal, because it imports rich and pygments,
which takes 60 ms of CPU at every start.
"""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TextIO

from mainspring.kernel.terminal import visible, visible_line

Fields = dict[str, Any]

_bound: ContextVar[Fields | None] = ContextVar("bound", default=None)
_writing = threading.Lock()


class Logger:
    """Logs events as one line with fields. The field `exc_info` adds the traceback of an exception."""

    def __init__(self, name: str) -> None:
        self._name = name

    def debug(self, event: str, **fields: Any) -> None:
        self._write_line(logging.DEBUG, "debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._write_line(logging.INFO, "info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write_line(logging.WARNING, "warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._write_line(logging.ERROR, "error", event, fields)

    def _write_line(self, number: int, level: str, event: str, fields: Fields) -> None:
        if number < _sink.threshold:
            return
        line = {"module": self._name, **fields, "event": event}
        for field, value in (_bound.get() or {}).items():
            line.setdefault(field, value)
        line["level"] = level
        line["timestamp"] = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        with suppress(OSError, ValueError):  # a full disk or a closed pipe must not stop the process
            _sink.write(_render(line))


def configure_logs(*, role: str, json: bool | None = None, level: str = "info") -> None:
    """Set up logging for a process. The default of `json` is True unless stderr is a terminal."""
    global _sink
    as_json = (not sys.stderr.isatty()) if json is None else json
    number = logging.getLevelNamesMapping()[level.upper()]
    _sink = _Sink(sys.stderr, _as_json if as_json else _console(), number)
    bind_log_context(role=role)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Visible("%(message)s"))
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[handler])


def bind_log_context(**fields: str) -> None:
    """Add these fields to every line that this asyncio task and the tasks it starts will log."""
    _bound.set({**(_bound.get() or {}), **fields})


def get_logger(name: str) -> Logger:
    return Logger(name)


def _render(line: Fields) -> str:
    try:
        return _sink.render(dict(line))
    except Exception:  # noqa: BLE001 - a value can be any object, and logging must not fail because of it
        return _sink.render({field: _plain(field, value) for field, value in line.items()})


def _plain(field: str, value: Any) -> Any:
    if value is None or field == "exc_info" or isinstance(value, str | int | float):
        return value
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - see above
        return f"<{type(value).__name__}>"


def _as_json(line: Fields) -> str:
    error = line.pop("exc_info", None)
    if isinstance(error, BaseException):
        line["exception"] = "".join(traceback.format_exception(error)).rstrip("\n")
    return json.dumps(line, default=repr)


def _console() -> Callable[[Fields], str]:
    from structlog.dev import ConsoleRenderer, plain_traceback  # only on a terminal: see above

    def write_traceback(stream: TextIO, error: Any) -> None:
        # Plain tracebacks: the pretty ones print local variables, which can contain tokens.
        plain_traceback(text := io.StringIO(), error)
        stream.write(visible(text.getvalue()))

    renderer = ConsoleRenderer(exception_formatter=write_traceback)
    return lambda line: renderer(None, "", {field: _shown(value) for field, value in line.items()})


def _shown(value: Any) -> Any:
    """Names and messages of others must not control the terminal. The renderer quotes other values itself."""
    return visible_line(value) if isinstance(value, str) else value


class _Visible(logging.Formatter):
    """For the messages of libraries."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


@dataclass(frozen=True, slots=True)
class _Sink:
    """The destination of log lines: the stream that was stderr when logging was set up. A program that calls a command
    in-process can close that stream later. The lines then go to the stderr of the process, if there is one."""

    stream: TextIO | None
    render: Callable[[Fields], str]
    threshold: int

    def write(self, line: str) -> None:
        stream = sys.__stderr__ if self.stream is None or self.stream.closed else self.stream
        if stream is None:
            return
        with _writing:
            stream.write(line + "\n")
            stream.flush()


_sink = _Sink(sys.stderr, _as_json, logging.INFO)
