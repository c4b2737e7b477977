"""Structured logs: one JSON object per line, or on a terminal one readable line (log_text.py)."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TextIO
from uuid import UUID

from mainspring.kernel.log_text import TextLine, traceback_text
from mainspring.kernel.terminal import visible

Fields = dict[str, Any]
LOG_FORMATS = ("auto", "text", "json")

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

    def detail(self, event: str, **fields: Any) -> None:
        """Log a detail for readers of the log. A person at a terminal sees it only with the level debug."""
        (self.debug if _sink.as_text else self.info)(event, **fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write_line(logging.WARNING, "warning", event, fields)

    def diagnostic(self, event: str, **fields: Any) -> None:
        """Log a warning for those who examine a server. A person at a terminal sees it only with the level debug."""
        (self.debug if _sink.as_text else self.warning)(event, **fields)

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


class PacedLog:
    """Logs a line that can occur many times at once: one every few seconds, with the number of lines that were left
    out."""

    def __init__(self, log: Logger, every: float = 5.0, now: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._every = every
        self._now = now
        self._said_at = -every
        self._left_out = 0

    def warning(self, event: str, **fields: Any) -> None:
        now = self._now()
        if now - self._said_at < self._every:
            self._left_out += 1
            return
        more = {"more_before": self._left_out} if self._left_out else {}
        self._said_at, self._left_out = now, 0
        self._log.warning(event, **fields, **more)


def configure_logs(*, role: str, log_format: str = "auto", level: str = "info") -> None:
    """Set up logging for a process. The format `auto` is text if stderr is a terminal, and otherwise JSON."""
    global _sink
    terminal = sys.stderr.isatty()
    as_text = log_format == "text" or (log_format == "auto" and terminal)
    number = logging.getLevelNamesMapping()[level.upper()]
    render = TextLine(coloured=terminal and not os.environ.get("NO_COLOR")) if as_text else _as_json
    _sink = _Sink(sys.stderr, render, number, as_text)
    bind_log_context(role=role)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Visible("%(message)s"))
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[handler])


def bind_log_context(**fields: str) -> None:
    """Add these fields to every line that this asyncio task and the tasks it starts will log."""
    _bound.set({**(_bound.get() or {}), **fields})


def about_run(tenant: int | None, job: str | None, run: UUID, attempt: int) -> Fields:
    """The fields of every line about a run. `tenant`: None if the process does not know it. `job`: None for a run that
    is a job by itself."""
    fields: Fields = {} if tenant is None else {"tenant": tenant}
    fields |= {"job": str(run) if job is None else job, "run": str(run), "attempt": attempt}
    return fields


def logs_are_text() -> bool:
    """Whether a person reads the log of this process."""
    return _sink.as_text


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
        line["exception"] = traceback_text(error)
    return json.dumps(line, default=repr)


class _Visible(logging.Formatter):
    """Shows the messages of libraries without control characters."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


@dataclass(frozen=True, slots=True)
class _Sink:
    """The destination of log lines: the stream that was stderr when logging was set up. A program that calls a command
    in-process can close that stream later. The lines then go to the stderr of the process, if there is one."""

    stream: TextIO | None
    render: Callable[[Fields], str]
    threshold: int
    as_text: bool = False

    def write(self, line: str) -> None:
        stream = sys.__stderr__ if self.stream is None or self.stream.closed else self.stream
        if stream is None:
            return
        with _writing:
            stream.write(line + "\n")
            stream.flush()


_sink = _Sink(sys.stderr, _as_json, logging.INFO)
