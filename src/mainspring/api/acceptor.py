"""Accepts connections, many in one turn of the loop.

uvloop accepts one connection in each turn. While a loop is busy its turns are long and few, so new connections wait in
the kernel's queue, which then overflows: a server looked healthy while workers could not connect to it and were lost.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

from mainspring.kernel.logs import get_logger

log = get_logger("acceptor")

_AT_ONCE = 100
_PAUSE = 1.0  # seconds, when there are too many open files
_HANDSHAKE = 5.0  # seconds for the TLS handshake

ProtocolFactory = Callable[[], asyncio.Protocol]


class Acceptor:
    """Helps a server that listens on `listener` already. Both may accept; each connection comes to one of them."""

    def __init__(
        self, listener: socket.socket, protocol: ProtocolFactory, *, tls: ssl.SSLContext | None = None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = socket.socket(fileno=os.dup(listener.fileno()))
        self._socket.setblocking(False)
        self._protocol = protocol
        self._tls = tls
        self._connecting: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._loop.add_reader(self._socket, self._accept)

    def close(self) -> None:
        """Accept no more. The socket is listened on for as long as anybody has it open."""
        if self._pause is not None:
            self._pause.cancel()
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._socket.close()

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("no connection can be accepted for a moment", error=repr(error))
                self._loop.remove_reader(self._socket)
                self._pause = self._loop.call_later(_PAUSE, self._loop.add_reader, self._socket, self._accept)
                return
            connection.setblocking(False)
            task = self._loop.create_task(self._connect(connection))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def _connect(self, connection: socket.socket) -> None:
        timeout = None if self._tls is None else _HANDSHAKE
        with suppress(OSError):  # it hung up meanwhile, or the handshake failed
            await self._loop.connect_accepted_socket(
                self._protocol, connection, ssl=self._tls, ssl_handshake_timeout=timeout
            )
