"""Requests whose end or target two programs would see differently, and what such requests cost the server.

Needs: PostgreSQL, loopback.
"""

from __future__ import annotations

import gc
import json
from collections.abc import AsyncIterator
from weakref import ref

import httpx
import pytest

from mainspring.kernel import metrics
from mainspring.roles.assembly import Assembly
from tests.attack.edge import HEAD, Edge, an_edge
from tests.operations.waiting import until

pytestmark = pytest.mark.anyio

HEALTH = "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
GONE = "POST /v1/exchange/gone HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


@pytest.fixture
async def edge(assembly: Assembly) -> AsyncIterator[Edge]:
    async with an_edge(assembly) as made:
        yield made


@pytest.mark.parametrize(
    "lines",
    [
        "Connection: Upgrade\r\nUpgrade: foo\r\n",
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
        "Connection: keep-alive, upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
    ],
)
async def test_the_body_of_a_request_for_an_upgrade_is_never_a_request(edge: Edge, lines: str) -> None:
    client = await edge.connect()
    client.send(f"{GONE}{lines}Content-Length: {len(HEALTH)}\r\n\r\n")
    status, headers, body = await client.answer()
    assert (status, headers["connection"]) == (400, ["close"])
    assert json.loads(body)["code"] == "upgrade_not_supported"
    client.send(HEALTH)
    assert b"HTTP/1.1" not in await client.rest()


async def test_connect_is_refused(edge: Edge) -> None:
    client = await edge.connect()
    client.send("CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n" + HEALTH)
    assert (await client.answer())[0] == 400
    assert await client.rest() == b""


async def test_an_upgrade_header_that_asks_for_nothing_is_ignored(edge: Edge) -> None:
    client = await edge.connect()
    assert await client.ask("GET", "/v1/jobs", head=HEAD + "Upgrade: h2c\r\n") == 200
    assert await client.ask("GET", "/v1/jobs") == 200


@pytest.mark.parametrize("encoding", ["gzip, chunked", "chunked, chunked", "identity, chunked", "x, chunked"])
async def test_a_body_is_encoded_in_chunks_or_not_at_all(edge: Edge, encoding: str) -> None:
    client = await edge.connect()
    client.send(f"{GONE}Transfer-Encoding: {encoding}\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n{HEALTH}")
    status, _, body = await client.answer()
    assert (status, json.loads(body)["code"]) in ((501, "unknown_transfer_encoding"), (400, "malformed_request"))
    assert await client.rest() == b""


async def test_chunks_are_for_http_1_1(edge: Edge) -> None:
    client = await edge.connect()
    client.send(GONE.replace("HTTP/1.1", "HTTP/1.0") + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
    assert (await client.answer())[0] == 501
    client = await edge.connect()
    client.send(f"{GONE}Transfer-Encoding: Chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n{HEALTH}")
    assert [(await client.answer())[0] for _ in range(2)] == [401, 200]


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://evil/v1/jobs", 400),
        ("http://127.0.0.1@evil/v1/jobs", 400),
        ("http://evil@127.0.0.1/v1/jobs", 400),
        ("http://127.0.0.1:81/v1/jobs", 400),
        ("http://evil?/v1/jobs", 400),
        ("http://127.0.0.1", 400),
        ("http://127.0.0.1/v1/jobs", 200),
        ("/v1/jobs?x=http://evil", 422),
    ],
)
async def test_the_request_line_names_the_server_that_host_names(edge: Edge, target: str, status: int) -> None:
    client = await edge.connect()
    client.send(f"GET {target} HTTP/1.1\r\n{HEAD}\r\n")
    assert (await client.answer())[0] == status


async def test_malformed_requests_are_counted_and_not_logged(edge: Edge, caplog: pytest.LogCaptureFixture) -> None:
    before = _malformed()
    for request in ("no HTTP\r\n\r\n", f"{GONE}Connection: Upgrade\r\nUpgrade: x\r\n\r\n", GONE + GONE + "\r\n"):
        client = await edge.connect()
        client.send(request)
        assert (await client.answer())[0] == 400
    assert _malformed() - before == 3
    assert caplog.records == []


def _malformed() -> float:
    return metrics.REGISTRY.get_sample_value("mainspring_requests_malformed_total") or 0.0


# --- requests that are sent ahead


async def test_requests_sent_ahead_wait_unread(edge: Edge, api: httpx.AsyncClient) -> None:
    run_id = (await api.post("/v1/jobs", json={"task": "x"})).json()["job_id"]
    client = await edge.connect()
    client.send(f"GET /v1/runs/{run_id}/logs?follow=true HTTP/1.1\r\n{HEAD}\r\n")
    await client.reader.readuntil(b"the log of a run\n\n")
    [connection] = edge.connections.open
    head = "GET /" + "a" * 60_000 + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    client.send(head * 80)
    await until(lambda: len(connection.pipeline) > 0)  # type: ignore[attr-defined]
    for _ in range(100):
        connection.flow.resume_reading()  # type: ignore[attr-defined]  # as every `receive` of the app does
        await edge.wait(1)
    assert len(connection.pipeline) <= 5  # type: ignore[attr-defined]
    assert connection.flow.read_paused  # type: ignore[attr-defined]


async def test_requests_sent_ahead_are_all_answered(edge: Edge) -> None:
    client = await edge.connect()
    body = "{" + " " * 200_000
    big = f"POST /v1/jobs HTTP/1.1\r\n{HEAD}Content-Length: {len(body)}\r\n\r\n{body}"
    padded = HEALTH.replace("Host", "X: " + "x" * 30_000 + "\r\nHost")
    client.send((padded * 20 + big) * 3 + HEALTH)
    assert [(await client.answer())[0] for _ in range(64)] == ([200] * 20 + [400]) * 3 + [200]
    assert await client.ask("GET", "/healthz") == 200


async def test_a_closed_connection_keeps_nothing(edge: Edge, api: httpx.AsyncClient) -> None:
    run_id = (await api.post("/v1/jobs", json={"task": "x"})).json()["job_id"]
    follow = f"GET /v1/runs/{run_id}/logs?follow=true HTTP/1.1\r\n{HEAD}\r\n"
    head = "GET /" + "a" * 60_000 + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    for requests in (head, head * 3, follow, follow + head * 3):
        client = await edge.connect()
        [connection] = edge.connections.open
        known = ref(connection)
        client.send(requests)
        await client.reader.readuntil(b"\r\n\r\n")
        gc.disable()
        try:
            connection.transport.abort()  # type: ignore[attr-defined]
            del connection
            await until(lambda: known() is None)  # noqa: B023
        finally:
            gc.enable()
