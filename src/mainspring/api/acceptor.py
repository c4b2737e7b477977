"""Accepts connections, many in one turn of the loop.

uvloop accepts one connection in each turn. While a loop is busy its turns are long and few, so new connections wait in
the kernel's queue, which then overflows: a server looked healthy while workers could not connect to it and were lost.

It accepts no more than the server has room for. Otherwise all descriptors of the process could be in use, and then no
client can connect, and no file and no connection to the database can be opened.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

from mainspring.api.connections import Connections
from mainspring.api.early_refusals import FULL
from mainspring.kernel.logs import get_logger

log = get_logger("acceptor")

_AT_ONCE = 100
_PAUSE = 1.0  # seconds, when there are too many open files
_HANDSHAKE = 5.0  # seconds for the TLS handshake

ProtocolFactory = Callable[[], asyncio.Protocol]


class Acceptor:
    """Helps a server that listens on `listener` already. Both may accept; each connection comes to one of them."""

    def __init__(
        self,
        listener: socket.socket,
        protocol: ProtocolFactory,
        connections: Connections,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = socket.socket(fileno=os.dup(listener.fileno()))
        self._socket.setblocking(False)
        self._protocol = protocol
        self._tls = tls
        self._connections = connections
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
        room = self._connections.room(len(self._connecting) if self._tls is None else 0)  # handshakes are in the table
        if room <= 0:
            if not self._connections.make_room():  # otherwise there is room in the next turn
                self._refuse_one()
            return
        for _ in range(min(_AT_ONCE, room)):
            connection = self._next()
            if connection is None:
                return
            connection.setblocking(False)
            task = self._loop.create_task(self._connect(connection) if self._tls is None else self._greet(connection))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    def _next(self) -> socket.socket | None:
        try:
            return self._socket.accept()[0]
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return None
        except OSError as error:
            log.warning("no connection can be accepted for a moment", error=repr(error))
            self._loop.remove_reader(self._socket)
            self._pause = self._loop.call_later(_PAUSE, self._loop.add_reader, self._socket, self._accept)
            return None

    def _refuse_one(self) -> None:
        """All connections are in use by clients with tokens."""
        connection = self._next()
        if connection is not None:
            with connection, suppress(OSError):
                connection.setblocking(False)
                if self._tls is None:
                    connection.send(FULL)

    async def _connect(self, connection: socket.socket) -> None:
        with suppress(OSError):  # it hung up meanwhile
            await self._loop.connect_accepted_socket(self._protocol, connection)

    async def _greet(self, connection: socket.socket) -> None:
        """Do the TLS handshake. The connection is in the table meanwhile, as one of a client without a token."""
        handshake = Handshake(connection, self._connections.now + _HANDSHAKE)
        self._connections.opened(handshake)
        try:
            with suppress(OSError):  # it hung up, or did not speak TLS, or took too long
                await self._loop.connect_accepted_socket(
                    self._protocol, connection, ssl=self._tls, ssl_handshake_timeout=_HANDSHAKE
                )
        finally:
            self._connections.closed(handshake)


class Handshake:
    """A connection whose TLS handshake is under way."""

    idle = False

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self.deadline = deadline
        try:
            self.address = str(connection.getpeername()[0])
        except OSError:  # it has gone already
            self.address = ""

    def expire(self, now: float) -> None:
        self._end()

    def dismiss(self, why: str) -> None:
        self._end()

    def _end(self) -> None:
        """The end of input fails the handshake, which closes the connection."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
