"""Reads are compressed for those who accept it; secrets, writes and streams are not."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator

import httpx
import pytest

from mainspring.roles.assembly import Assembly
from tests.api.slices import listening
from tests.conftest import TOKEN

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(assembly: Assembly) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        listening(assembly) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers) as opened,
    ):
        yield opened


async def raw(client: httpx.AsyncClient, path: str, accepted: str) -> tuple[httpx.Headers, bytes]:
    async with client.stream("GET", path, headers={"Accept-Encoding": accepted}) as answer:
        return answer.headers, b"".join([part async for part in answer.aiter_raw()])


async def test_a_read_is_compressed(client: httpx.AsyncClient) -> None:
    path = "/v1/insights/overview?w=1h"
    headers, body = await raw(client, path, "gzip")
    assert (headers["content-encoding"], headers["vary"]) == ("gzip", "accept-encoding")
    assert int(headers["content-length"]) == len(body)
    plain_headers, plain = await raw(client, path, "identity")
    assert "content-encoding" not in plain_headers
    assert len(body) < len(plain) / 4
    assert gzip.decompress(body).startswith(b"{")


@pytest.mark.parametrize("accepted", ["gzip;q=0", "br", ""])
async def test_who_does_not_accept_it_gets_text(client: httpx.AsyncClient, accepted: str) -> None:
    headers, body = await raw(client, "/v1/insights/overview?w=1h", accepted)
    assert "content-encoding" not in headers and body.startswith(b"{")


async def test_short_answers_and_secrets_are_not_compressed(client: httpx.AsyncClient) -> None:
    for path in ("/v1/session", "/v1/tokens", "/readyz"):
        headers, _ = await raw(client, path, "gzip")
        assert "content-encoding" not in headers, path
