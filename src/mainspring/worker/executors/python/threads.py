"""A pool of daemon threads that reports back to the event loop in batches.

concurrent.futures is not used, because at exit it waits for threads that never return, and it wakes the loop once per
call: a no-op, 20 at a time, takes 29 µs there and 4 µs here.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
_EXIT_FORKED = 70


class _Raised(NamedTuple):
    error: BaseException


class ThreadPool(Generic[T]):
    """At most `size` threads, started when they are needed."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._threads = 0
        self._busy = 0
        self._calls: SimpleQueue[tuple[Callable[[], T], contextvars.Context, asyncio.Future[T]]] = SimpleQueue()
        self._done: deque[tuple[asyncio.Future[T], T | _Raised]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = False
        self._pid = os.getpid()

    def run(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run `call`, which should not raise, in a thread and in a copy of the current context."""
        loop = self._loop = self._loop or asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if self._busy >= self._threads < self._size:
            # Counted after the start: if no thread can be started this raises, and the next call tries again.
            threading.Thread(target=self._work, name=f"mainspring-{self._threads + 1}", daemon=True).start()
            self._threads += 1
        self._busy += 1
        self._calls.put((call, contextvars.copy_context(), future))
        return future

    def _work(self) -> None:
        while True:
            call, context, future = self._calls.get()
            value: T | _Raised
            try:
                value = context.run(call)
            except BaseException as error:  # noqa: BLE001 - otherwise the thread would end, and its caller would wait for ever
                value = _Raised(error)
            if os.getpid() != self._pid:  # the call forked, and this is the child process
                os._exit(_EXIT_FORKED)
            self._done.append((future, value))
            del call, context, future, value  # an idle thread holds no references
            self._wake()

    def _wake(self) -> None:
        # Set after the append and cleared before the results are read: a wake-up may be redundant, but none is lost.
        if not self._woken and self._loop is not None:
            self._woken = True
            try:
                self._loop.call_soon_threadsafe(self._hand_over)
            except RuntimeError:  # the loop is closed: the process ends
                return

    def _hand_over(self) -> None:
        self._woken = False
        while self._done:
            future, value = self._done.popleft()
            self._busy -= 1
            if future.done():
                continue
            if isinstance(value, _Raised):
                future.set_exception(RuntimeError(f"a call in a thread raised {type(value.error).__name__}"))
            else:
                future.set_result(value)
