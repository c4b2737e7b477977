"""Captures the output of Python tasks for the log of their run: sys.stdout, sys.stderr and logging.

Tasks on the loop or in threads share the streams of the process. So the streams are replaced once by streams that check
a context variable: within an attempt the text goes to the log of that attempt, elsewhere to the real stream. Log
records follow, because handlers that write to the real streams are redirected. An attempt that prints nothing opens
nothing; to set the variable takes 0.1 µs.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from typing import Any, TextIO, cast

from mainspring.worker.execution.attempt import Attempt, OpenLog

current: ContextVar[Attempt | None] = ContextVar("mainspring_attempt", default=None)
"""The attempt that this task or thread works for."""

_NO_SHIELD = nullcontext()

Write = Callable[[Attempt, bytes], None]


class LogWriter:
    """Writes to the logs of attempts from the loop and from threads. A thread waits while too much output waits to be
    shipped. The loop cannot wait, but the log of an attempt has a cap."""

    def __init__(self, open_log: OpenLog) -> None:
        self._open_log = open_log
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def write(self, attempt: Attempt, data: bytes) -> None:
        with shielded(attempt):
            sink = attempt.log or self._open_log(attempt)
        if sink.full and threading.get_ident() != self._thread:
            with suppress(RuntimeError):  # the loop is closed: the process ends
                asyncio.run_coroutine_threadsafe(sink.room(), self._loop).result()
        with shielded(attempt):
            sink.write(data)


def shielded(attempt: Attempt) -> AbstractContextManager[None]:
    """A thread is not interrupted within this block: it changes state of the worker, not only of the attempt."""
    return _NO_SHIELD if attempt.interruption is None else attempt.interruption.shield()


@contextmanager
def captured_streams(open_log: OpenLog) -> Iterator[None]:
    """Within this block the output of attempts goes to their logs. Enter it on the loop of the worker."""
    write = LogWriter(open_log).write
    before = sys.stdout, sys.stderr
    out, err = _Stream(before[0], write), _Stream(before[1], write)
    sys.stdout, sys.stderr = cast(TextIO, out), cast(TextIO, err)
    redirected = _redirect_handlers({id(before[0]): out, id(before[1]): err})
    undo_level = _enable_info_records()
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for handler, stream in redirected:
            handler.setStream(stream)
        undo_level()


class _Stream:
    """Replaces a text stream. Outside of attempts it writes to the real one."""

    def __init__(self, real: TextIO, write: Write) -> None:
        self._real = real
        self._write = write

    def write(self, text: str) -> int:
        attempt = current.get()
        if attempt is None:
            return self._real.write(text)
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if text:
            self._write(attempt, text.encode("utf-8", "backslashreplace"))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if current.get() is None:
            self._real.flush()

    def isatty(self) -> bool:
        return current.get() is None and self._real.isatty()

    @property
    def buffer(self) -> Any:
        attempt = current.get()
        return self._real.buffer if attempt is None else _Buffer(attempt, self._write)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _Buffer:
    """`sys.stdout.buffer` within an attempt."""

    def __init__(self, attempt: Attempt, write: Write) -> None:
        self._attempt = attempt
        self._write = write

    def write(self, data: Any) -> int:
        taken = bytes(data)
        self._write(self._attempt, taken)
        return len(taken)

    def flush(self) -> None:
        """Nothing is buffered here."""


def _redirect_handlers(streams: dict[int, _Stream]) -> list[tuple[logging.StreamHandler[Any], Any]]:
    """Redirect logging handlers from the real streams. Returns them with their previous streams."""
    loggers = [logging.getLogger(), *map(logging.getLogger, list(logging.Logger.manager.loggerDict))]
    handlers = {handler for logger in loggers for handler in logger.handlers}
    return [
        (handler, handler.setStream(ours))
        for handler in handlers
        if isinstance(handler, logging.StreamHandler) and (ours := streams.get(id(handler.stream)))
    ]


def _enable_info_records() -> Callable[[], None]:
    """Let the root logger create INFO records, for the logs of runs. Outside of attempts handlers still drop them. Does
    nothing if the application has configured INFO or lower. Returns a function that undoes it."""
    root = logging.getLogger()
    level = root.level
    if level <= logging.INFO:
        return lambda: None

    def wanted(record: logging.LogRecord) -> bool:
        return record.levelno >= level or current.get() is not None

    handlers = list(root.handlers)
    for handler in handlers:
        handler.addFilter(wanted)
    root.setLevel(logging.INFO)

    def undo() -> None:
        root.setLevel(level)
        for handler in handlers:
            handler.removeFilter(wanted)

    return undo
