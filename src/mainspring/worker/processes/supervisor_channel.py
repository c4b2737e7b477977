"""The worker's end of the socket of a supervisor: sends it one command after the other, and reads the news of each."""

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

    def lose(self, *, unread: bool = False) -> None:
        """The supervisor and its command are gone. `unread`: it did not read everything it was sent."""


class SupervisorChannel:
    """`when_free` is called with the channel when it can take another command, `when_lost` when it is closed."""

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
        """Let an idle supervisor run a command; OSError if it is gone. When this returns it has copies of the
        descriptors, and the caller closes its own."""
        self._listener = listener
        frame = _frame("start", order)
        sent = socket.send_fds(self._control, [frame], descriptors)
        self._outbox = frame[sent:]
        self._write()

    def say(self, word: str, value: Any = None) -> None:
        if self._control.fileno() >= 0:
            self._outbox += _frame(word, value)
            self._write()

    def close(self, *, unread: bool = False) -> None:
        """Give the supervisor up: it kills its command and exits."""
        if self._control.fileno() < 0:
            return
        self._loop.remove_reader(self._control)
        self._loop.remove_writer(self._control)
        self._control.close()
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.lose(unread=unread)
        self._when_lost(self)

    def _read(self) -> None:
        unread = False
        try:
            chunk = self._control.recv(_CHUNK)
        except BlockingIOError:
            return
        except ConnectionResetError:  # the kernel reports that something was not read
            chunk, unread = b"", True
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        for line in lines:
            word, _, value = line.decode().partition(" ")
            if self._listener is not None:
                self._listener.hear(word, value)
            if word == "gone":
                self._listener = None
                self._when_free(self)
        if not chunk:
            self.close(unread=unread)

    def _write(self) -> None:
        """Send what the socket takes now, and the rest later: an environment can be large."""
        try:
            sent = self._control.send(self._outbox) if self._outbox else 0
        except BlockingIOError:
            sent = 0
        except OSError:  # the supervisor is gone, which the next read reports
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
