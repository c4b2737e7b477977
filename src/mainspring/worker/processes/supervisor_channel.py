"""The worker's end of the socket of a supervisor: sends it one command after the other, and reads the news of each.

The socket closes when the supervisor and the watchdog, which has a copy of the other end, have closed it. Both write
`cleared` before they do so. If the socket closes without it, both were killed, and processes of the command may still
exist. The command is then lost only when `until_cleared` has returned.
"""

from __future__ import annotations

import asyncio
import marshal
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

_CHUNK = 1 << 16


class Listener(Protocol):
    def hear(self, word: str, value: str) -> None:
        """News of the command: started, exited, breach, gone."""

    def lose(self, *, unread: bool = False) -> None:
        """The supervisor and its command are gone. `unread`: it did not read everything it was sent."""


class SupervisorChannel:
    """`when_free` is called with the channel when it can take another command, `when_lost` when it is closed.
    supervisor: its pid, 0 until it is known. isolated: it has a pid namespace of its own."""

    def __init__(
        self,
        control: socket.socket,
        *,
        when_free: Callable[[SupervisorChannel], None],
        when_lost: Callable[[SupervisorChannel], None],
        until_cleared: Callable[[SupervisorChannel], Awaitable[None]] | None = None,
        isolated: bool = False,
    ) -> None:
        self.supervisor = 0
        self.isolated = isolated
        self._control = control
        self._until_cleared = until_cleared
        self._cleared = False
        self._tampered = False
        self._waiting: asyncio.Task[None] | None = None
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
        if self._waiting is not None and self._waiting is not asyncio.current_task():
            self._waiting.cancel()
        self._loop.remove_reader(self._control)
        self._loop.remove_writer(self._control)
        self._control.close()
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.lose(unread=unread)
        self._when_lost(self)

    def _read(self) -> None:
        """Read all there is. If the socket was closed with an error, uvloop calls this only once."""
        while self._control.fileno() >= 0 and self._waiting is None:
            unread = False
            try:
                chunk = self._control.recv(_CHUNK)
            except BlockingIOError:
                return
            except ConnectionResetError:  # the kernel reports that something was not read
                chunk, unread = b"", True
            *lines, self._partial = (self._partial + chunk).split(b"\n")
            for line in lines:
                self._hear(*line.decode().partition(" ")[::2])
            if not chunk:
                self._end(unread=unread)

    def _hear(self, word: str, value: str) -> None:
        self._cleared = word == "cleared"
        if word == "supervisor":
            self.supervisor = int(value)
        elif word == "tampered":
            self._tampered = True
        elif self._listener is not None:
            self._listener.hear(word, value)
        if word == "gone":
            self._listener = None
            if self._tampered:
                self.close()
            else:
                self._when_free(self)

    def _end(self, *, unread: bool) -> None:
        """The other end is closed."""
        if self._cleared or self._listener is None or not self.supervisor or self._until_cleared is None:
            self.close(unread=unread)
            return
        self._loop.remove_reader(self._control)
        self._waiting = self._loop.create_task(self._close_when_cleared(self._until_cleared, unread=unread))

    async def _close_when_cleared(
        self, until_cleared: Callable[[SupervisorChannel], Awaitable[None]], *, unread: bool
    ) -> None:
        await until_cleared(self)
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
