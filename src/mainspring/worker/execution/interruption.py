"""Interrupts a call in a thread: raises `Halted` in it, and never in what the thread does afterwards."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
_set_async_exc = ctypes.pythonapi.PyThreadState_SetAsyncExc
_set_async_exc.argtypes = (ctypes.c_ulong, ctypes.py_object)
_NOTHING = ctypes.py_object()  # withdraws an exception that has not been raised yet


class Halted(BaseException):
    """Raised in a plain function whose run is to end. It is a BaseException, so that `except Exception` does not catch
    it."""


class Interruption:
    """One call that can be interrupted. Python raises the exception when the thread next executes Python code; a call
    into C that does not return cannot be interrupted."""

    __slots__ = ("_asked", "_held_back", "_lock", "_shielded", "_thread")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread = 0
        self._asked = False
        self._shielded = False
        self._held_back = False

    def run(self, call: Callable[[], T], otherwise: T) -> T:
        """Make the call. Returns `otherwise` if it was interrupted and did not catch that."""
        result = otherwise
        try:
            try:
                self._thread = threading.get_ident()
                result = call()
            finally:
                self._leave()
        except Halted:
            self._leave()  # it may have been raised on the way into the first call of _leave
        return result

    def interrupt(self) -> None:
        """Interrupt the call if it runs. Can be called again if the call goes on."""
        with self._lock:
            if not self._thread:
                return
            self._asked = True
            if self._shielded:
                self._held_back = True
            else:
                _set_async_exc(self._thread, Halted)

    @contextmanager
    def shield(self) -> Iterator[None]:
        """Code in this block is not interrupted: others rely on it being completed."""
        if threading.get_ident() != self._thread:
            yield
            return
        self._turn(shielded=True)
        try:
            yield
        finally:
            held_back = self._turn(shielded=False)
        if held_back:
            raise Halted

    def _turn(self, *, shielded: bool) -> bool:
        with self._lock:
            if shielded and self._asked:
                # The exception may be pending, and must not be raised inside the block. It may also have been raised
                # already, and the call may be cleaning up: so it is not raised again here. The caller may interrupt
                # again.
                _set_async_exc(self._thread, _NOTHING)
                self._asked = False
            held_back, self._shielded, self._held_back = self._held_back, shielded, False
            return held_back

    def _leave(self) -> None:
        """After this returns, no exception is raised in the thread any more."""
        while True:
            try:
                with self._lock:
                    if self._asked:
                        _set_async_exc(self._thread, _NOTHING)
                    self._thread, self._asked = 0, False
                return
            except Halted:
                continue
