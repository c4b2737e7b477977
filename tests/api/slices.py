"""The CPU time of each callback of the event loop, while a server listens in it; and a client that sends bytes."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

import uvicorn
from uvicorn.server import ServerState

from mainspring.api.connections import Connections
from mainspring.kernel.garbage_collection import freeze_garbage_collection
from mainspring.roles.assembly import Assembly
from mainspring.roles.server import edge_settings
from tests.conftest import TEMPLATE, TOKEN, Databases, put_together, reached
from tests.pgbouncer import PgBouncer

T = TypeVar("T")

PIECE = 256 * 1024


class Slices:
    """`longest` is the most CPU time that one callback has taken, in seconds; `callback` is which."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.longest, self.callback = 0.0, ""

    def note(self, seconds: float, handle: asyncio.Handle) -> None:
        if seconds > self.longest:
            self.longest, self.callback = seconds, repr(handle)


@contextmanager
def measured() -> Iterator[Slices]:
    """With the garbage collector as a server has it."""
    slices, run = Slices(), asyncio.Handle._run

    def run_and_note(self: asyncio.Handle) -> None:
        began = time.thread_time()
        run(self)
        slices.note(time.thread_time() - began, self)

    thresholds = gc.get_threshold()
    freeze_garbage_collection()
    asyncio.Handle._run = run_and_note  # type: ignore[method-assign]
    try:
        yield slices
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]
        gc.set_threshold(*thresholds)
        gc.unfreeze()


@asynccontextmanager
async def listening(assembly: Assembly, connections: Connections | None = None) -> AsyncIterator[int]:
    """The port of a server that reads HTTP as in production. Its connections are swept only by the test."""
    settings = edge_settings(connections or Connections())
    config = uvicorn.Config(assembly.front(), lifespan="off", log_config=None, access_log=False, **settings)
    config.load()
    state = ServerState()
    state.default_headers = config.encoded_headers
    make: Callable[..., asyncio.Protocol] = config.http_protocol_class
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: make(config, state, {}), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for connection in list(state.connections):
            connection.transport.abort()  # type: ignore[union-attr]


@asynccontextmanager
async def shared_server(databases: Databases, pgbouncer: PgBouncer | None) -> AsyncIterator[tuple[Assembly, int]]:
    """A server and its port, for all tests of a module. What is loaded at the first request is loaded."""
    async with (
        databases.a_database(TEMPLATE) as url,
        put_together(reached(url, pgbouncer)) as assembly,
        listening(assembly) as port,
    ):
        job = b'{"http":{"url":"https://example.com/","success":{"json":"$.ok"}}}'
        assert await send(port, request("GET", "/v1/jobs")) == 200
        assert await send(port, request("POST", "/v1/jobs", job)) == 201
        yield assembly, port


def filled(begin: bytes, element: bytes, end: bytes, size: int) -> bytes:
    """`begin`, as many elements as go into `size` bytes, and `end`."""
    count = (size - len(begin) - len(end)) // (len(element) + 1)
    return begin + b",".join([element] * count) + end


def cut(data: list[bytes]) -> list[bytes]:
    return [piece[at : at + PIECE] for piece in data for at in range(0, len(piece), PIECE)]


BUDGET = 0.1  # seconds, on a machine that needs `_REFERENCE` for `_yardstick`
_REFERENCE = 0.003
_STRUCTURE = b"[" + b",".join([b'{"a":[1,2.5,"b"]}'] * 5000) + b"]"


def _yardstick() -> float:
    """The CPU time of work like a server's. A busy core with two threads does all work half as fast."""
    enabled = gc.isenabled()
    gc.disable()
    began = time.thread_time()
    json.loads(_STRUCTURE)
    took = time.thread_time() - began
    if enabled:
        gc.enable()
    return took


async def within_budget(slices: Slices, act: Callable[[], Awaitable[T]], what: str, tries: int = 3) -> T:
    """What `act` gives. Fails if one of its slices takes too much CPU time, each time that it is done."""
    found: list[str] = []
    for attempt in range(tries):
        before = _yardstick() if attempt or tries == 1 else 0.0
        await asyncio.sleep(0)  # the step that made the data is none of the server's
        slices.forget()
        result = await act()
        fast = slices.longest < BUDGET  # on any machine: the yardstick only adds to the budget
        budget = BUDGET if fast else BUDGET * max(1.0, before / _REFERENCE, _yardstick() / _REFERENCE)
        found.append(f"{slices.longest:.3f} of {budget:.3f} s in {slices.callback}")
        if "SLICES" in os.environ:
            print(f"SLICE {slices.longest * 1000:.0f} ms for {what[:80]} in {slices.callback[:100]}")  # noqa: T201
        if slices.longest < budget:
            return result
    raise AssertionError(f"{what}: {found}")


async def ask(port: int, pieces: list[bytes]) -> tuple[int, bytes]:
    """Status and body of the answer to one request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        body = bytearray()
        while piece := await reader.read(2**18):
            body += piece
            await asyncio.sleep(0)
        return int(head.split()[1]), bytes(body)
    finally:
        writer.transport.abort()


async def send(port: int, pieces: list[bytes]) -> int:
    """The status of the first answer to these bytes; 0 when the server hung up without one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def write() -> None:
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
        except ConnectionError:
            pass  # it has refused already

    writing = asyncio.create_task(write())
    try:
        line = await reader.readline()
        return int(line.split()[1]) if line else 0
    except ConnectionError:
        return 0
    finally:
        await writing
        writer.transport.abort()


def request(method: str, path: str, body: bytes = b"", token: str = TOKEN) -> list[bytes]:
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return cut([head.encode(), body])


async def check(port: int, slices: Slices, data: list[bytes], status: int | None) -> None:
    """Send these bytes. The answer has this status, and no slice takes too long."""
    pieces = cut(data)
    answered = await within_budget(slices, lambda: send(port, pieces), repr(data[0][:60]))
    assert status is None or answered == status
