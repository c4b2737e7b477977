"""Connections for http tasks. The name is resolved here, every address is checked, and a checked address is used.

There is no second look-up between the check and the connection, so DNS rebinding does not work. TLS still verifies the
certificate of the name.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from typing import Any

from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock
from mainspring.kernel.light_httpx import httpx
from mainspring.kinds.http.address_guard import AddressGuard
from mainspring.kinds.http.connection import (
    ConnectError,
    ConnectTimeout,
    NameNotFound,
    Origin,
    TaskConnection,
    UnreadCounter,
    in_words,
)
from mainspring.worker.executors.python.threads import ThreadPool

# Most servers close an idle connection after 5 seconds or later. A request sent at that moment would be lost.
_IDLE_SECONDS = 4.0
_MOST_IDLE = 256
_RESOLVING_AT_ONCE = 16

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""All addresses of a host, as text; raises OSError or UnicodeError if there are none."""


class Resolver:
    """Resolves names with the resolver of the system, in threads of its own. The threads of the loop also resolve the
    address of the server, and must not wait for a job whose name server is silent."""

    def __init__(self) -> None:
        self._threads: ThreadPool[list[str] | OSError | UnicodeError] = ThreadPool(_RESOLVING_AT_ONCE)

    async def __call__(self, host: str, port: int) -> list[str]:
        with suppress(ValueError):
            return [str(ip_address(host))]
        found = await self._threads.run(partial(_addresses, host, port))
        if isinstance(found, Exception):
            raise found
        return found


def _addresses(host: str, port: int) -> list[str] | OSError | UnicodeError:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # UnicodeError: a label that is empty or too long
        return error
    return list(dict.fromkeys(str(address[4][0]) for address in found))


class HttpConnections:
    """Opens connections where `guard` permits, and keeps idle ones for a few seconds."""

    def __init__(self, guard: AddressGuard, *, resolve: Resolve | None = None, clock: LoopClock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._guard = guard
        self._resolve = resolve or Resolver()
        self._tls: ssl.SSLContext | None = None
        self._idle: dict[Origin, list[TaskConnection]] = {}
        self._idle_count = 0

    async def take(self, origin: Origin, timeout: float, *, fresh: bool = False) -> TaskConnection:
        """A connection for one request, to be returned with `put`.

        Raises AddressRefused, ConnectError or ConnectTimeout.
        """
        while not fresh and (idle := self._idle.get(origin)):
            connection = idle[-1]
            self._forget(connection)
            if connection.reusable:
                return connection
            connection.close()
        return await self._connect(origin, timeout)

    def put(self, connection: TaskConnection) -> None:
        """Keep the connection if its last answer was read completely; otherwise close it."""
        if not connection.reusable or self._idle_count >= _MOST_IDLE:
            connection.close()
            return
        self._idle.setdefault(connection.origin, []).append(connection)
        self._idle_count += 1
        connection.expiry = self._clock.call_later(_IDLE_SECONDS, self._expire, connection)

    def close(self) -> None:
        """Close the idle connections."""
        for connection in [connection for idle in self._idle.values() for connection in idle]:
            self._expire(connection)

    def _expire(self, connection: TaskConnection) -> None:
        self._forget(connection)
        connection.close()

    def _forget(self, connection: TaskConnection) -> None:
        if connection.expiry is not None:
            connection.expiry.cancel()
        idle = self._idle[connection.origin]
        idle.remove(connection)
        self._idle_count -= 1
        if not idle:
            del self._idle[connection.origin]

    async def _connect(self, origin: Origin, timeout: float) -> TaskConnection:
        give_up = self._clock.monotonic() + timeout
        try:
            async with self._clock.timeout(timeout):
                addresses = await self.addresses(origin)
        except TimeoutError:
            raise ConnectTimeout(f"{origin.host} was not resolved within {timeout:g} s") from None
        error: Exception = NameNotFound(f"{origin.host} has no address")
        for index, address in enumerate(addresses):
            # The remaining time is divided, so that a dead first address does not use up the time of the second one.
            share = max(0.0, give_up - self._clock.monotonic()) / (len(addresses) - index)
            where = f"{origin.host} port {origin.port}"
            try:
                async with self._clock.timeout(share):
                    return await self._open(origin, address)
            except TimeoutError:
                error = ConnectTimeout(f"no connection to {where} within {share:.3g} s")
            except (OSError, ValueError) as failure:  # ValueError: a name that TLS does not take
                error = ConnectError(f"no connection to {where}: {in_words(failure)}")
        raise error

    async def addresses(self, origin: Origin) -> list[str]:
        """The addresses of a host, all of which may be called. Raises AddressRefused or NameNotFound."""
        try:
            addresses = await self._resolve(origin.host, origin.port)
        except (OSError, UnicodeError) as error:
            raise NameNotFound(f"cannot resolve {origin.host}: {error}") from None
        self._guard.check(*origin, addresses)
        return addresses

    async def _open(self, origin: Origin, address: str) -> TaskConnection:
        loop = asyncio.get_running_loop()
        reader = UnreadCounter(loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        tls: dict[str, Any] = {}
        if origin.scheme == "https":
            if self._tls is None:
                self._tls = httpx.create_ssl_context()
            tls = {"ssl": self._tls, "server_hostname": origin.host.rstrip(".")}
        # `address` is numeric: there is no look-up.
        transport, _ = await loop.create_connection(lambda: protocol, address, origin.port, **tls)
        return TaskConnection(origin, reader, asyncio.StreamWriter(transport, protocol, reader, loop))
