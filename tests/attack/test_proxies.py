"""A proxy of the environment never gets a token in clear text, unless the user allows it.

Needs: loopback.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from mainspring.domain.errors import MainspringError
from mainspring.kernel.data_folder import record_folder
from mainspring.sdk.client.async_client import AsyncClient
from mainspring.sdk.client.client import Client
from tests.processes.cluster import free_port

pytestmark = pytest.mark.anyio


@pytest.fixture
async def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[list[str]]:
    """The first lines and headers that a proxy for everything has received. It refuses all."""
    received: list[str] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 403 no\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    for name in ("NO_PROXY", "MAINSPRING_URL", "MAINSPRING_DATA", "MAINSPRING_INSECURE_HTTP"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, address)
        monkeypatch.setenv(name.lower(), address)
    monkeypatch.chdir(tmp_path)
    async with server:
        yield received


async def _ask(url: str, *, insecure_http: bool = False, token: str | None = "ms_secret") -> None:
    def blocking() -> None:
        client = Client(url, token, insecure_http=insecure_http, patience=0, timeout=30)
        with client, suppress(MainspringError):
            client.jobs()

    await asyncio.to_thread(blocking)
    client = AsyncClient(url, token, insecure_http=insecure_http, patience=0, timeout=30)
    with suppress(MainspringError):
        await client.jobs()
    await client.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
async def test_an_address_of_this_machine_uses_no_proxy_beside_others(asked: list[str], host: str) -> None:
    await _ask(f"http://{host}:{free_port()},https://other.invalid:8700")
    assert not any("ms_secret" in one or "http://" in one for one in asked)
    assert all(one.startswith("CONNECT other.invalid:8700 ") for one in asked)


async def test_https_uses_the_proxy_which_does_not_see_the_token(asked: list[str]) -> None:
    await _ask("https://other.invalid:8700")
    assert asked
    assert all(one.startswith("CONNECT ") and "ms_secret" not in one for one in asked)


async def test_plain_http_uses_the_proxy_only_if_it_is_allowed(asked: list[str]) -> None:
    await _ask("http://other.invalid:8700", token=None)
    assert asked == []
    await _ask("http://other.invalid:8700", insecure_http=True)
    assert asked
    assert all(one.startswith("GET http://other.invalid:8700/") for one in asked)


async def test_the_address_that_up_wrote_uses_no_proxy(asked: list[str], tmp_path: Path) -> None:
    folder = tmp_path / ".mainspring"
    folder.mkdir(mode=0o700)
    (folder / "server.json").write_text('{"url": "http://here.invalid:8700"}')
    (folder / "admin-token").write_text("ms_secret")
    record_folder(folder)
    with Client(patience=0, timeout=0.5) as client:
        assert client.connection.token == "ms_secret"
        with suppress(MainspringError):
            await asyncio.to_thread(client.jobs)
    assert asked == []
