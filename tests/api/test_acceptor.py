"""Many connections that arrive together are accepted in a few turns of a loop, however long the turns are."""

from __future__ import annotations

import asyncio
import socket

import uvloop

from mainspring.api.acceptor import Acceptor
from mainspring.api.connections import Connections

CONNECTIONS = 500
TURNS = 20


class Counted(asyncio.Protocol):
    made = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        Counted.made += 1


async def accept_all() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Counted, "127.0.0.1", 0, backlog=2 * CONNECTIONS)
    [listener] = server.sockets
    acceptor = Acceptor(listener, Counted, Connections())
    port = listener.getsockname()[1]
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS)]
    try:
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert Counted.made == CONNECTIONS
        acceptor.close()
        acceptor.close()
        server.close()
        await server.wait_closed()
    finally:
        for client in clients:
            client.close()


def test_connections_do_not_wait_for_as_many_turns() -> None:
    uvloop.run(accept_all())
