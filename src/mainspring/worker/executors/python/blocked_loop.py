"""Warns of async tasks that block the event loop of their worker for a second, with the line at which they do.

While such a task blocks, no other async task goes on, and the worker cannot speak to its server: after the seconds of
the lease it would be taken for dead. A thread asks the loop for an answer ten times a second while async tasks run. If
none comes, it reads the stack of the loop's thread.
"""

from __future__ import annotations

import asyncio
import sys
import sysconfig
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from mainspring.kernel.logs import get_logger
from mainspring.worker.about_order import about

log = get_logger("worker")

BLOCKED = 0.9  # seconds; with the time between two questions, a second
_BETWEEN = 0.1
_IDLE = 30.0
_MOST_REMEMBERED = 1000
_PACKAGE = str(Path(__file__).parents[3])
_LIBRARIES = tuple(
    {_PACKAGE, *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")), "<frozen"}
)
_HINT = "declare it with a plain `def`, which runs in a thread, or call `await asyncio.to_thread(...)`"


class BlockedLoopWatch:
    """`of`: the code of the coroutine that runs an attempt, whose local `attempt` is the one that blocks."""

    def __init__(self) -> None:
        self.of: CodeType | None = None
        self._running = 0
        self._wanted = threading.Event()
        self._answered = threading.Event()
        self._never = threading.Event()  # for the pause between two questions
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._warned: set[tuple[str, int]] = set()

    def begin(self) -> None:
        """An async task begins. Called on the loop."""
        self._running += 1
        if self._wanted.is_set():
            return
        self._wanted.set()
        if self._loop is None:
            self._loop, self._loop_thread = asyncio.get_running_loop(), threading.get_ident()
            threading.Thread(target=self._watch, name="async-task-watch", daemon=True).start()

    def end(self) -> None:
        self._running -= 1

    def _watch(self) -> None:
        assert self._loop is not None
        while True:
            while not self._wanted.wait(_IDLE):
                if self._loop.is_closed():
                    return
            self._answered.clear()
            try:
                self._loop.call_soon_threadsafe(self._answered.set)
            except RuntimeError:  # the loop is closed
                return
            if not self._answered.wait(BLOCKED):
                self._warn()
                while not self._answered.wait(1.0):
                    if self._loop.is_closed():
                        return
            self._never.wait(_BETWEEN)
            if self._running <= 0:
                self._wanted.clear()
                if self._running > 0:  # it began meanwhile
                    self._wanted.set()

    def _warn(self) -> None:
        stack = list(_frames(sys._current_frames().get(self._loop_thread)))
        if self._answered.is_set():  # it went on meanwhile: this is another stack
            return
        own = [frame for frame in stack if not frame.f_code.co_filename.startswith(_LIBRARIES)]
        if not own:
            return
        place = (own[0].f_code.co_filename, own[0].f_lineno)
        if place in self._warned or len(self._warned) >= _MOST_REMEMBERED:
            return
        self._warned.add(place)
        order: Any = next((f.f_locals["attempt"].order for f in stack if f.f_code is self.of), None)
        run = {} if order is None else {"task": order.task, **about(order)}
        log.warning(
            "an async task blocks the event loop of its worker for a second", **run,
            at=f"{place[0]}:{place[1]}", function=own[0].f_code.co_name, hint=_HINT,
        )  # fmt: skip


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames of a stack, the innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back
