"""Requests whose end or target two programs would see differently, and what such requests cost the server.

Needs: PostgreSQL, loopback.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from mainspring.roles.assembly import Assembly
from tests.attack.edge import HEAD, Edge, an_edge

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
