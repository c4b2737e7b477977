"""TCP proxies that tests can break: one to PostgreSQL for each process, and one to the servers for each caller.

They run in a separate thread with its own event loop, so that a busy test does not slow the cluster down. A proxy with
several upstreams is a load balancer: connections go to the upstreams in turn, and to the next one if one refuses.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
Upstream = Path | int  # a Unix socket, or a port of this machine
_CHUNK = 65536
_LINGER_NOT = struct.pack("ii", 1, 0)  # close with a reset


class Way(StrEnum):
    """How a proxy treats data."""

    PASS = "pass"
    DELAY = "delay"
    RESET = "reset"
    HALF_OPEN = "half-open"
    ANSWERS_HELD = "one-way"
    DROP_ANSWER = "drop-the-answer"


class ProxyLink:
    """One listening port of the proxy and its connections. Only `Links` changes it."""

    def __init__(self, name: str, upstreams: Sequence[Upstream]) -> None:
        self.name = name
        self.upstreams = list(upstreams)
        self.port = 0
        self.way = Way.PASS
        self.delay = 0.0
        self.only = b""
        self.dropped = 0
        self._turn = 0
        self._requests = asyncio.Event()
        self._answers = asyncio.Event()
        self._never = asyncio.Event()  # keeps the tasks that wait for it from being garbage collected
        self._requests.set()
        self._answers.set()
        self._connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._cut_all()

    def disturb(self, way: Way, delay: float, only: bytes) -> None:
        self.way, self.delay, self.only = way, delay, only
        _set(self._requests, way is not Way.HALF_OPEN)
        _set(self._answers, way not in (Way.HALF_OPEN, Way.ANSWERS_HELD))
        if way is Way.RESET:
            self._cut_all()

    def heal(self, *, deliver: bool) -> None:
        """Work again. Held data is delivered late (`deliver`), or its connections are closed."""
        held = self.way in (Way.HALF_OPEN, Way.ANSWERS_HELD)
        self.way, self.delay = Way.PASS, 0.0
        if held and not deliver:
            self._cut_all()
        self._requests.set()
        self._answers.set()

    def lead_to(self, upstreams: Sequence[Upstream]) -> None:
        self.upstreams = list(upstreams)
        self._cut_all()

    def strand(self) -> None:
        """The existing connections transfer nothing and are never closed. New connections work."""
        for connection in self._connections:
            connection.stranded = True

    def _cut_all(self) -> None:
        for connection in tuple(self._connections):
            connection.cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(writer)
        self._connections.add(connection)
        try:
            if self.way is Way.RESET:
                return
            await self._requests.wait()
            upstream = await self._connect()
            if upstream is None:
                return
            connection.add(upstream[1])
            pumps = [
                asyncio.ensure_future(self._pump(connection, reader, upstream[1], self._requests)),
                asyncio.ensure_future(self._pump(connection, upstream[0], writer, self._answers)),
            ]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        except asyncio.CancelledError:
            return  # the proxy is closed; asyncio's streams would log an error
        finally:
            self._connections.discard(connection)
            connection.cut()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for _ in self.upstreams:
            self._turn += 1
            upstream = self.upstreams[self._turn % len(self.upstreams)]
            with suppress(OSError):
                if isinstance(upstream, Path):
                    return await asyncio.open_unix_connection(str(upstream))
                return await asyncio.open_connection("127.0.0.1", upstream)
        return None

    async def _pump(
        self,
        connection: _Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        gate: asyncio.Event,
    ) -> None:
        """Transfer one direction. A broken proxy does not forward the end of the stream either, like a cut cable."""
        while True:
            try:
                chunk = await reader.read(_CHUNK)
            except OSError:
                chunk = b""
            await gate.wait()
            if connection.stranded:
                await self._never.wait()
            if not chunk:
                return
            if gate is self._answers and self.way is Way.DROP_ANSWER and self.only in chunk:
                self.dropped += 1
                return
            if self.delay:
                await asyncio.sleep(self.delay)
            try:
                writer.write(chunk)
                await writer.drain()
            except OSError:
                return


class _Connection:
    """Both ends of one proxied connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.stranded = False
        self._writers = [writer]

    def add(self, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)

    def cut(self) -> None:
        for writer in self._writers:
            raw = writer.get_extra_info("socket")
            if raw is not None and raw.family == socket.AF_INET:
                with suppress(OSError):
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
            writer.transport.abort()


class Links:
    """All proxies of a cluster, and their thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._links: list[ProxyLink] = []
        self._thread.start()

    def open(self, name: str, upstreams: Sequence[Upstream]) -> ProxyLink:
        link = self._do(_made(name, upstreams))
        self._links.append(link)
        return link

    def disturb(self, link: ProxyLink, way: Way, *, delay: float = 0.0, only: bytes = b"") -> None:
        """`only`: of the answers those are dropped that contain it."""
        self._do(_called(lambda: link.disturb(way, delay, only)))

    def heal(self, link: ProxyLink, *, deliver: bool = False) -> None:
        self._do(_called(lambda: link.heal(deliver=deliver)))

    def lead_to(self, link: ProxyLink, upstreams: Sequence[Upstream]) -> None:
        """New connections go there, and those that exist are cut."""
        self._do(_called(lambda: link.lead_to(upstreams)))

    def strand(self, link: ProxyLink) -> None:
        self._do(_called(link.strand))

    def close(self) -> None:
        for link in self._links:
            self._do(link.close())
        self._do(_all_ended())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)


async def _made(name: str, upstreams: Sequence[Upstream]) -> ProxyLink:
    link = ProxyLink(name, upstreams)
    await link.open()
    return link


async def _called(call: Callable[[], None]) -> None:
    call()


async def _all_ended() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _set(event: asyncio.Event, open_: bool) -> None:
    if open_:
        event.set()
    else:
        event.clear()
