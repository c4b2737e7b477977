"""The worker's end of a supervisor's socket: hands it one command after the other, and hears what becomes of each."""

from __future__ import annotations

import asyncio
import marshal
import socket
from collections.abc import Callable
from typing import Any, Protocol

_CHUNK = 1 << 16


class Listener(Protocol):
    def hear(self, word: str, value: str) -> None:
        """News of the command: started, exited, breach, gone."""

    def lose(self, *, unheard: bool = False) -> None:
        """The supervisor is gone, and so is its command; `unheard` when it did not read what it was told."""


class SupervisorChannel:
    """`when_free` is called with the line when it can take another command, `when_lost` when it never will."""

    def __init__(
        self,
        control: socket.socket,
        *,
        when_free: Callable[[SupervisorChannel], None],
        when_lost: Callable[[SupervisorChannel], None],
    ) -> None:
        self._control = control
        self._when_free = when_free
        self._when_lost = when_lost
        self._listener: Listener | None = None
        self._loop = asyncio.get_running_loop()
        self._outbox = b""
        self._blocked = False
        self._partial = b""
        control.setblocking(False)
        self._loop.add_reader(control, self._read)

    def start(self, order: dict[str, Any], descriptors: list[int], listener: Listener) -> None:
        """Have a free supervisor run a command; OSError when it is gone. It has copies of the descriptors when this
        returns; the caller closes its own."""
        self._listener = listener
        frame = _frame("start", order)
        sent = socket.send_fds(self._control, [frame], descriptors)
        self._outbox = frame[sent:]
        self._write()

    def say(self, word: str, value: Any = None) -> None:
        if self._control.fileno() >= 0:
            self._outbox += _frame(word, value)
            self._write()

    def close(self, *, unheard: bool = False) -> None:
        """Want no more of it: it kills what it runs, and leaves."""
        if self._control.fileno() < 0:
            return
        self._loop.remove_reader(self._control)
        self._loop.remove_writer(self._control)
        self._control.close()
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.lose(unheard=unheard)
        self._when_lost(self)

    def _read(self) -> None:
        unheard = False
        try:
            chunk = self._control.recv(_CHUNK)
        except BlockingIOError:
            return
        except ConnectionResetError:  # how the kernel says that something was not read
            chunk, unheard = b"", True
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        for line in lines:
            word, _, value = line.decode().partition(" ")
            if self._listener is not None:
                self._listener.hear(word, value)
            if word == "gone":
                self._listener = None
                self._when_free(self)
        if not chunk:
            self.close(unheard=unheard)

    def _write(self) -> None:
        """As much as the socket takes now, and the rest when it takes more: an environment can be large."""
        try:
            sent = self._control.send(self._outbox) if self._outbox else 0
        except BlockingIOError:
            sent = 0
        except OSError:  # the supervisor is gone; we are about to read that
            sent = len(self._outbox)
        self._outbox = self._outbox[sent:]
        if bool(self._outbox) != self._blocked:
            self._blocked = not self._blocked
            if self._blocked:
                self._loop.add_writer(self._control, self._write)
            else:
                self._loop.remove_writer(self._control)


def _frame(word: str, value: Any) -> bytes:
    data = marshal.dumps((word, value))
    return len(data).to_bytes(4) + data
