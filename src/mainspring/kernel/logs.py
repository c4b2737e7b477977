"""Structured logs: one JSON object a line for machines, coloured key=value for a terminal."""

from __future__ import annotations

import logging
import sys
from typing import Any

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
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(role=role)
    logging.basicConfig(level=max(number, logging.WARNING), stream=sys.stderr, format="%(message)s")


def _keep(_logger: Any, _method: str, event: Any) -> Any:
    return event


def bind_log_context(**fields: str) -> None:
    """Put these fields on every line that this task, and what it starts, logs from now on."""
    structlog.contextvars.bind_contextvars(**fields)


def get_logger(name: str) -> Logger:
    logger: Logger = structlog.get_logger(module=name)
    return logger
