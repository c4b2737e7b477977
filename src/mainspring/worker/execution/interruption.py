"""Breaks off a call that runs in a thread: raises `Halted` where it stands, and never in what the thread does next."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
_set_async_exc = ctypes.pythonapi.PyThreadState_SetAsyncExc
_set_async_exc.argtypes = (ctypes.c_ulong, ctypes.py_object)
_NOTHING = ctypes.py_object()  # takes back what has not been raised yet


class Halted(BaseException):
    """Raised in a plain function whose run is to end. No Exception, so that `except Exception` does not swallow it."""


class Interruption:
    """One call that can be broken off. Python raises the exception when the thread is next at a line of Python: a call
    into C that does not return is not reached."""

    __slots__ = ("_asked", "_held_back", "_lock", "_shielded", "_thread")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread = 0
        self._asked = False
        self._shielded = False
        self._held_back = False

    def run(self, call: Callable[[], T], otherwise: T) -> T:
        """Make the call; `otherwise` when it was broken off and did not catch that."""
        result = otherwise
        try:
            try:
                self._thread = threading.get_ident()
                result = call()
            finally:
                self._leave()
        except Halted:
            self._leave()  # it was raised on the way into the first one, perhaps
        return result

    def interrupt(self) -> None:
        """Break it off, if it is under way; may be called again when it goes on regardless."""
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
        """What the call does meanwhile is done to its end: others rely on it."""
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
                # It may be about to be raised, which must not be in there. Nobody knows whether it has been: it is not
                # raised again, for the call may have caught it and be tidying up. Who insists interrupts again.
                _set_async_exc(self._thread, _NOTHING)
                self._asked = False
            held_back, self._shielded, self._held_back = self._held_back, shielded, False
            return held_back

    def _leave(self) -> None:
        """Once this has returned nothing is raised any more."""
        while True:
            try:
                with self._lock:
                    if self._asked:
                        _set_async_exc(self._thread, _NOTHING)
                    self._thread, self._asked = 0, False
                return
            except Halted:
                continue
