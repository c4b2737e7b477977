"""Structured logs: one JSON object a line for machines, coloured key=value for a terminal."""

from __future__ import annotations

import io
import logging
import sys
from typing import Any, TextIO, cast

import structlog

Logger = structlog.stdlib.BoundLogger


def configure_logs(*, role: str, json: bool | None = None, level: str = "info") -> None:
    """Set up logging for a process; `json` defaults to 'not on a terminal'."""
    as_json = (not sys.stderr.isatty()) if json is None else json
    # Plain tracebacks: the pretty ones print local variables, and those hold tokens.
    console = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    renderer: Any = structlog.processors.JSONRenderer() if as_json else console
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info if as_json else _keep,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _Stderr(sys.stderr))),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(role=role)
    logging.basicConfig(level=max(number, logging.WARNING), stream=sys.stderr, format="%(message)s")


class _Stderr(io.TextIOBase):
    """The stream that was stderr when logging was set up. Loggers outlive it where a command is called from within
    another program, which may have closed it: then the words go to the process's own."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._open().write(text)

    def flush(self) -> None:
        self._open().flush()

    def _open(self) -> TextIO:
        return self._stream if not self._stream.closed or sys.__stderr__ is None else sys.__stderr__


def _keep(_logger: Any, _method: str, event: Any) -> Any:
    return event


def bind_log_context(**fields: str) -> None:
    """Put these fields on every line that this task, and what it starts, logs from now on."""
    structlog.contextvars.bind_contextvars(**fields)


def get_logger(name: str) -> Logger:
    logger: Logger = structlog.get_logger(module=name)
    return logger
