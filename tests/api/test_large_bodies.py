"""Large bodies have turns: few at a time, fair between tenants, unread while they wait. Small bodies never wait."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from mainspring.api import large_bodies
from mainspring.api.connections import Connections, EdgeLimits
from mainspring.api.large_bodies import LargeBodies
from mainspring.kernel.config import LARGE_BYTES, MAX_BODY_BYTES, MAX_JOB_BYTES
from mainspring.roles.assembly import Assembly
from tests.api.slices import listening
from tests.conftest import TOKEN
from tests.eventually import PATIENCE
from tests.operations.waiting import until

pytestmark = pytest.mark.anyio

# What lies between the socket and the request: one piece of the transport, and what uvicorn buffers.
UNREAD = 512 * 1024
BATCH = b"[" + b",".join([b'{"task":"x","payload":{"a":"' + b"x" * 100_000 + b'"}}'] * 20) + b"]"


class Client:
    """One connection with one request."""

    def __init__(self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._reader, self._writer = reader, writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def answer(self) -> tuple[int, dict[str, str], Any]:
        async with asyncio.timeout(PATIENCE):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:-2])}
            body = await self._reader.readexactly(int(headers.get("content-length", "0")))
        return int(head[0].split()[1]), headers, json.loads(body)

    async def rest(self) -> bytes:
        """What the server still sends before it closes the connection."""
        async with asyncio.timeout(PATIENCE):
            await self._writer.drain()
            return await self._reader.read()

    def read_by_server(self) -> int:
        """Bytes of the body that the server has taken from the socket."""
        port = self._writer.get_extra_info("sockname")[1]
        found: int = next(one._body_bytes for one in self._server.connections.open if one.client[1] == port)  # type: ignore[attr-defined]
        return found

    def hang_up(self) -> None:
        self._writer.transport.abort()


class Server:
    def __init__(self, assembly: Assembly) -> None:
        self.connections = Connections(EdgeLimits())
        self.bodies: LargeBodies = assembly.app.state.large_bodies
        self.port = 0
        self._clients: list[Client] = []

    async def post(
        self, path: str, body: bytes, *, token: str = TOKEN, length: int | None = None, head: str = ""
    ) -> Client:
        """Send a request with this body, or with the first part of a longer one."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**20)
        client = Client(self, reader, writer)
        self._clients.append(client)
        head = head or f"Content-Length: {len(body) if length is None else length}\r\n"
        client.send(
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\n{head}\r\n".encode()
            + body
        )
        return client

    async def half(self, *, token: str = TOKEN, length: int = 1024 * 1024) -> Client:
        """A batch of which only the beginning arrives. It has a turn, and keeps it."""
        before = self.bodies.clients.turns.held
        client = await self.post("/v1/jobs:batch", BATCH[:1000], token=token, length=length)
        await until(lambda: self.bodies.clients.turns.held == before + 1)
        return client

    async def waiting(self, path: str, body: bytes, *, token: str = TOKEN) -> Client:
        """A request that waits for its turn."""
        before = self.bodies.clients.turns.waiting
        client = await self.post(path, body, token=token)
        await until(lambda: self.bodies.clients.turns.waiting == before + 1)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.hang_up()


@pytest.fixture
async def server(assembly: Assembly) -> AsyncIterator[Server]:
    made = Server(assembly)
    async with listening(assembly, made.connections) as made.port:
        try:
            yield made
        finally:
            made.close()


@pytest.fixture
async def other(api: httpx.AsyncClient) -> str:
    """A token of another tenant."""
    created = await api.post("/v1/tenants", json={"name": "other"})
    return str(created.json()["admin_token"]["token"])


async def test_what_waits_is_not_read_and_small_bodies_and_other_tenants_do_not_wait(
    server: Server, other: str
) -> None:
    first, second = await server.half(), await server.half()
    waiting = [await server.waiting("/v1/jobs:batch", BATCH) for _ in range(8)]
    small = await server.post("/v1/jobs", b'{"task":"x","payload":{"a":"' + b"x" * (LARGE_BYTES - 100) + b'"}}')
    assert (await small.answer())[0] == 201
    others = await server.post("/v1/jobs:batch", BATCH, token=other)
    assert (await others.answer())[0] == 201
    assert all(client.read_by_server() < UNREAD for client in waiting)
    first.hang_up()
    assert (await waiting[0].answer())[0] == 201
    second.hang_up()
    assert [(await client.answer())[0] for client in waiting[1:]] == [201] * 7
    await until(lambda: (server.bodies.clients.turns.held, server.bodies.clients.turns.waiting) == (0, 0))


async def test_a_tenant_that_sends_many_does_not_keep_the_only_request_of_another_one_waiting(
    server: Server, api: httpx.AsyncClient, other: str
) -> None:
    third = str((await api.post("/v1/tenants", json={"name": "third"})).json()["admin_token"]["token"])
    holders = [await server.half(), await server.half(), await server.half(token=third)]
    many = [await server.waiting("/v1/jobs:batch", BATCH) for _ in range(8)]
    one = await server.waiting("/v1/jobs:batch", BATCH, token=other)
    holders[2].hang_up()  # the tenant that waits first has as much as it may, so this is the turn of the other one
    assert (await one.answer())[0] == 201
    assert server.bodies.clients.turns.waiting == len(many)


async def test_the_waiting_list_is_bounded_and_a_refusal_says_when_to_come_again(
    server: Server, api: httpx.AsyncClient
) -> None:
    for _ in range(2):
        await server.half()
    for _ in range(32):
        await server.waiting("/v1/jobs:batch", BATCH)
    large = BATCH + b" " * (MAX_BODY_BYTES // 2)
    for close in ("", "Connection: close\r\n"):  # the answer arrives, also if the rest of the body is still under way
        refused = await server.post("/v1/jobs:batch", large, head=f"Content-Length: {len(large)}\r\n{close}")
        status, headers, problem = await refused.answer()
        assert (status, headers["retry-after"], problem["code"]) == (429, "1", "too_many_requests")
        assert headers["connection"] == "close"
        assert await refused.rest() == b""
    assert (await api.get("/v1/jobs")).json()["jobs"] == []


async def test_bytes_count_too(server: Server) -> None:
    await server.half(length=MAX_BODY_BYTES)
    await server.waiting("/v1/jobs:batch", BATCH)


async def test_a_body_that_is_too_large_for_its_route_needs_no_turn(server: Server) -> None:
    for _ in range(2):
        await server.half()
    too_large = await server.post("/v1/jobs", b"{", length=MAX_JOB_BYTES + 1)
    assert (await too_large.answer())[0] == 413
    too_large = await server.post("/v1/session", b"{", length=MAX_JOB_BYTES)
    assert (await too_large.answer())[0] == 413


async def test_a_body_in_chunks_waits_when_it_has_become_large(server: Server) -> None:
    holders = [await server.half(), await server.half()]
    chunked = "Transfer-Encoding: chunked\r\n"
    job = b'{"task":"x","payload":{"a":"' + b"x" * (LARGE_BYTES - 1000) + b'"}}'
    small = await server.post("/v1/jobs", b"%x\r\n%b\r\n0\r\n\r\n" % (len(job), job), head=chunked)
    assert (await small.answer())[0] == 201
    large = await server.post("/v1/jobs:batch", b"%x\r\n%b\r\n0\r\n\r\n" % (len(BATCH), BATCH), head=chunked)
    await until(lambda: server.bodies.clients.turns.waiting == 1)
    assert large.read_by_server() < UNREAD
    for holder in holders:
        holder.hang_up()
    assert (await large.answer())[0] == 201


async def test_workers_do_not_wait_for_clients(server: Server) -> None:
    for _ in range(2):
        await server.half()
    hello = {"name": "w", "queues": ["default"], "tasks": ["a"], "slots": 1}
    held = [[str(uuid4()), 1]] * 3000
    exchange = {"worker_id": str(uuid4()), "seq": 1, "hello": hello, "inventory": held, "recover": True}
    body = json.dumps(exchange).encode()
    assert len(body) > LARGE_BYTES
    assert (await (await server.post("/v1/exchange", body)).answer())[0] == 200


async def test_an_exchange_that_waits_for_runs_has_given_its_turn_back(server: Server, assembly: Assembly) -> None:
    hello = {"name": "w" * 200, "queues": ["default"], "tasks": [f"t{number:090}" for number in range(900)], "slots": 1}
    body = {"worker_id": str(uuid4()), "seq": 1, "hello": hello, "free": 1, "wait_ms": 10_000}
    encoded = json.dumps(body).encode()
    assert len(encoded) > LARGE_BYTES
    waiting = await server.post("/v1/exchange", encoded)
    await until(lambda: len(assembly.long_polls) == 1)
    await until(lambda: server.bodies.workers.turns.held == 0)
    assembly.long_polls.close()
    assert (await waiting.answer())[0] == 200


async def test_a_body_that_does_not_move_is_cut_while_others_wait(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_bodies, "_LOOK", 0.01)
    monkeypatch.setattr(large_bodies, "_HEAD_START", 0.0)
    monkeypatch.setattr(large_bodies, "_RATE", 2**40)
    slow = [await server.half(), await server.half()]
    server.bodies.clients._look()
    assert server.bodies.clients.turns.held == 2  # nobody waits for them
    waiting = await server.post("/v1/jobs:batch", BATCH)
    await until(lambda: server.bodies.clients.turns.waiting > 0)
    for _ in range(5):  # again while the requests are being ended
        server.bodies.clients._look()
        await asyncio.sleep(0)
    assert (await waiting.answer())[0] == 201
    status, _, problem = await slow[0].answer()
    assert (status, problem["code"]) == (408, "body_too_slow")
