"""A server whose connections are swept by the test, on a clock that the test moves; and clients that send bytes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mainspring.api.connections import Connections, EdgeLimits
from mainspring.roles.assembly import Assembly
from tests.api.slices import listening
from tests.conftest import TOKEN
from tests.eventually import PATIENCE
from tests.operations.waiting import until

HEAD = f"Host: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, text: str | bytes) -> None:
        self.writer.write(text.encode() if isinstance(text, str) else text)

    async def answer(self) -> tuple[int, dict[str, list[str]], bytes]:
        """Status, headers by name, and body of the next answer."""
        async with asyncio.timeout(PATIENCE):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers: dict[str, list[str]] = {}
            for line in head[1:-2]:
                name, _, value = line.partition(": ")
                headers.setdefault(name.lower(), []).append(value)
            body = await self.reader.readexactly(int(headers.get("content-length", ["0"])[0]))
        return int(head[0].split()[1]), headers, body

    async def ask(self, method: str, path: str, body: str = "", head: str = HEAD) -> int:
        self.send(f"{method} {path} HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n{body}")
        return (await self.answer())[0]

    async def rest(self) -> bytes:
        """What the server still sends before it closes the connection."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b"reset"

    async def read_at_least(self, count: int) -> int:
        """The number of bytes read; fewer at the end."""
        read = 0
        while read < count and (piece := await self.reader.read(2**16)):
            read += len(piece)
        return read


class Edge:
    def __init__(self, limits: EdgeLimits) -> None:
        self._now = 1000.0
        self._clients: list[Client] = []
        self.connections = Connections(limits, lambda: self._now)
        self.port = 0

    async def connect(self, receive_buffer: int | None = None) -> Client:
        """A new connection that the server has seen."""
        before = set(self.connections.open)
        opened = socket.socket()
        opened.setblocking(False)
        if receive_buffer is not None:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await asyncio.get_running_loop().sock_connect(opened, ("127.0.0.1", self.port))
        limit = receive_buffer or 2**16
        client = Client(*await asyncio.open_connection(sock=opened, limit=limit))
        self._clients.append(client)
        await until(lambda: bool(self.connections.open - before) or client.reader.at_eof())
        if receive_buffer is not None:
            for connection in self.connections.open - before:
                served: socket.socket = connection.transport.get_extra_info("socket")  # type: ignore[attr-defined]
                served.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, receive_buffer)
        return client

    def serves(self, client: Client) -> bool:
        """Whether the server keeps this connection open."""
        port = client.writer.get_extra_info("sockname")[1]
        return any(
            one.client[1] == port and not one.transport.is_closing()  # type: ignore[attr-defined]
            for one in self.connections.open
        )

    async def wait(self, seconds: float) -> None:
        """Let time pass, with a sweep each second."""
        for _ in range(int(seconds)):
            self._now += 1.0
            self.connections.sweep()
            await asyncio.sleep(0)

    def close(self) -> None:
        for client in self._clients:
            client.writer.transport.abort()


@asynccontextmanager
async def an_edge(assembly: Assembly, **limits: float) -> AsyncIterator[Edge]:
    edge = Edge(EdgeLimits(**limits))  # type: ignore[arg-type]
    async with listening(assembly, edge.connections) as edge.port:
        try:
            yield edge
        finally:
            edge.close()
