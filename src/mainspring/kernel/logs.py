"""Structured logs: one JSON object a line for machines, coloured key=value for a terminal.

The lines are structlog's, and on a terminal structlog makes them. Elsewhere it is not loaded: it brings rich and
pygments along, 60 ms of CPU at every start, of which a JSON object needs nothing.
"""

from __future__ import annotations

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

Fields = dict[str, Any]

_bound: ContextVar[Fields | None] = ContextVar("bound", default=None)
_writing = threading.Lock()


class Logger:
    """Says what happened, in one line with its fields. An `exc_info` field brings the traceback along."""

    def __init__(self, name: str) -> None:
        self._name = name

    def debug(self, event: str, **fields: Any) -> None:
        self._say(logging.DEBUG, "debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._say(logging.INFO, "info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._say(logging.WARNING, "warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._say(logging.ERROR, "error", event, fields)

    def _say(self, number: int, level: str, event: str, fields: Fields) -> None:
        if number < _sink.threshold:
            return
        said = {"module": self._name, **fields, "event": event}
        for field, value in (_bound.get() or {}).items():
            said.setdefault(field, value)
        said["level"] = level
        said["timestamp"] = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        with suppress(OSError, ValueError):  # a full disk, a reader that is gone: the work goes on without its words
            _sink.write(_rendered(said))


def configure_logs(*, role: str, json: bool | None = None, level: str = "info") -> None:
    """Set up logging for a process; `json` defaults to 'not on a terminal'."""
    global _sink
    as_json = (not sys.stderr.isatty()) if json is None else json
    number = logging.getLevelNamesMapping()[level.upper()]
    _sink = _Sink(sys.stderr, _as_json if as_json else _console(), number)
    bind_log_context(role=role)
    logging.basicConfig(level=max(number, logging.WARNING), stream=sys.stderr, format="%(message)s")


def bind_log_context(**fields: str) -> None:
    """Put these fields on every line that this task, and what it starts, logs from now on."""
    _bound.set({**(_bound.get() or {}), **fields})


def get_logger(name: str) -> Logger:
    return Logger(name)


def _rendered(said: Fields) -> str:
    try:
        return _sink.render(dict(said))
    except Exception:  # noqa: BLE001 - a value may be anybody's object, and saying what happened must not fail for it
        return _sink.render({field: _plain(field, value) for field, value in said.items()})


def _plain(field: str, value: Any) -> Any:
    if value is None or field == "exc_info" or isinstance(value, str | int | float):
        return value
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - see above
        return f"<{type(value).__name__}>"


def _as_json(said: Fields) -> str:
    error = said.pop("exc_info", None)
    if isinstance(error, BaseException):
        said["exception"] = "".join(traceback.format_exception(error)).rstrip("\n")
    return json.dumps(said, default=repr)


def _console() -> Callable[[Fields], str]:
    from structlog.dev import ConsoleRenderer, plain_traceback  # only where somebody looks: see above

    # Plain tracebacks: the pretty ones print local variables, and those hold tokens.
    renderer = ConsoleRenderer(exception_formatter=plain_traceback)
    return lambda said: renderer(None, "", said)


@dataclass(frozen=True, slots=True)
class _Sink:
    """Where lines go: the stream that was stderr when logging was set up. Loggers outlive it where a command is called
    from within another program, which may have closed it: then the words go to the process's own, if it has one."""

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
