"""Clients that connect to a server with TLS and do not finish the handshake make room for others. Needs openssl."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest
import uvloop

from mainspring.api.acceptor import Acceptor
from mainspring.api.certificate import LoadedCertificate, ServerCertificate, TlsFiles, load
from mainspring.api.connections import SPARE, Connections, EdgeLimits
from mainspring.domain.errors import InvalidInput, Unavailable
from mainspring.kernel.trust import trusted_context
from mainspring.sdk.client.async_client import AsyncClient
from tests.certificates import Authority, Issued
from tests.eventually import PATIENCE
from tests.operations.waiting import until

SILENT = 100


class Echo(asyncio.Protocol):
    """The connection of a client that has finished the handshake."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)


@pytest.mark.parametrize("limits", [EdgeLimits(connections=8), EdgeLimits(per_address=8, patience=0.0)])
def test_silent_clients_make_room_for_others(tmp_path: Path, limits: EdgeLimits) -> None:
    authority = Authority(tmp_path)
    context = load(TlsFiles(*authority.issue("server", "IP:127.0.0.1"))).context

    async def attack() -> None:
        connections = Connections(limits)
        with socket.create_server(("127.0.0.1", 0), backlog=2 * SILENT) as listener:
            port = listener.getsockname()[1]
            acceptor = Acceptor(listener, Echo, connections, tls=context)
            silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(SILENT)]
            try:
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", port, ssl=trusted_context(str(authority.ca))
                )
                writer.write(b"hello")
                assert await reader.readexactly(5) == b"hello"
                writer.transport.abort()
                await until(lambda: len(connections.open) <= 8 + SPARE)
            finally:
                acceptor.close()
                for client in silent:
                    client.close()
            await until(lambda: not connections.open)

    async def timed() -> None:
        async with asyncio.timeout(PATIENCE):
            await attack()

    uvloop.run(timed())


def test_a_silent_client_is_closed_at_its_deadline(tmp_path: Path) -> None:
    context = load(TlsFiles(*Authority(tmp_path).issue("server", "IP:127.0.0.1"))).context
    now = 1000.0

    async def attack() -> None:
        nonlocal now
        connections = Connections(EdgeLimits(), lambda: now)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            acceptor = Acceptor(listener, Echo, connections, tls=context)
            with socket.create_connection(listener.getsockname()) as silent:
                await until(lambda: len(connections.open) == 1)
                for _ in range(6):  # a step of more than three seconds would be one of a server that stood still
                    now += 1.0
                    connections.sweep()
                await until(lambda: not connections.open)
                silent.settimeout(10)
                assert silent.recv(1) == b""
            acceptor.close()

    uvloop.run(attack())


def test_plain_http_gets_nothing(tmp_path: Path) -> None:
    context = load(TlsFiles(*Authority(tmp_path).issue("server", "IP:127.0.0.1"))).context

    async def attack() -> None:
        connections = Connections()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            acceptor = Acceptor(listener, Echo, connections, tls=context)
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            with suppress(ConnectionError):
                assert b"GET" not in await reader.read()
            await until(lambda: not connections.open)
            acceptor.close()

    uvloop.run(attack())


def test_a_client_without_tls_is_told_to_use_it(tmp_path: Path) -> None:
    context = load(TlsFiles(*Authority(tmp_path).issue("server", "IP:127.0.0.1"))).context

    async def ask() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            acceptor = Acceptor(listener, Echo, Connections(), tls=context)
            client = AsyncClient(f"http://127.0.0.1:{listener.getsockname()[1]}", "a-token", patience=0)
            with pytest.raises(Unavailable) as refused:
                await client.jobs()
            assert "https://" in (refused.value.hint or "")
            await client.close()
            acceptor.close()

    uvloop.run(ask())


def test_a_pipe_in_place_of_the_key_does_not_hold_up_the_server(tmp_path: Path) -> None:
    files = TlsFiles(*Authority(tmp_path).issue("server", "IP:127.0.0.1"))
    certificate = ServerCertificate(files)
    files.key.unlink()
    os.mkfifo(files.key)
    with pytest.raises(InvalidInput, match="not a regular file"):
        load(files)
    assert not asyncio.run(certificate.run_once())


def test_the_loop_goes_on_while_a_certificate_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    first, second = authority.issue("first", "IP:127.0.0.1"), authority.issue("second", "IP:127.0.0.1")
    files = TlsFiles(tmp_path / "cert.pem", tmp_path / "key.pem")

    def put(issued: Issued) -> None:
        for source, target in zip(issued, (files.cert, files.key), strict=True):
            shutil.copy(source, target.with_suffix(".new"))
            target.with_suffix(".new").replace(target)

    put(first)
    served = ServerCertificate(files)
    put(second)
    slow, began = threading.Event(), threading.Event()

    def load_slowly(found: TlsFiles) -> LoadedCertificate:
        began.set()
        assert slow.wait(30)
        return load(found)

    monkeypatch.setattr("mainspring.api.certificate.load", load_slowly)

    async def reload() -> None:
        loading = asyncio.create_task(served.run_once())
        await until(began.is_set)
        slow.set()
        assert await loading

    asyncio.run(reload())
