"""A minimal load balancer: a TCP relay that forwards each connection to the next server that accepts it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count

_CHUNK = 65536


@asynccontextmanager
async def balanced(ports: Sequence[int]) -> AsyncIterator[str]:
    """The address of a balancer for the servers at these local ports. It has no health checks: it tries the next server
    when a connection fails, and closes a connection whose server has ended."""
    turns = count()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        turn = next(turns)
        for offset in range(len(ports)):
            with suppress(OSError):
                onward = await asyncio.open_connection("127.0.0.1", ports[(turn + offset) % len(ports)])
                await _relay_both_ways((reader, writer), onward)
                return
        writer.transport.abort()

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _relay_both_ways(client: Ends, server: Ends) -> None:
    """Relay until one side closes its connection, then close the other."""
    ways = {
        asyncio.create_task(_relay(client[0], server[1])),
        asyncio.create_task(_relay(server[0], client[1])),
    }
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        for _, writer in (client, server):
            writer.close()


async def _relay(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await source.read(_CHUNK):
            target.write(chunk)
            await target.drain()
