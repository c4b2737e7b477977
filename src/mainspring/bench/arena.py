"""Where a bench takes place: a fresh PostgreSQL, one server and one worker as real processes, all ended afterwards."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import asyncpg
import httpx

from mainspring.domain.errors import Unavailable
from mainspring.roles.token import ensure_admin_token
from mainspring.store.embedded import EmbeddedPostgres
from mainspring.store.migrate import migrate
from mainspring.store.pool import connect

_PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class Arena:
    postgres: EmbeddedPostgres
    folder: Path
    database_url: str
    server_url: str
    token: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}

    async def connect(self) -> asyncpg.Connection:
        return await connect(self.database_url, application="bench")


@asynccontextmanager
async def fresh_postgres() -> AsyncIterator[tuple[EmbeddedPostgres, Path]]:
    folder = Path(tempfile.mkdtemp(prefix="mainspring-bench-"))
    postgres = EmbeddedPostgres(folder / "data")
    postgres.start()
    try:
        yield postgres, folder
    finally:
        postgres.stop()
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def product(postgres: EmbeddedPostgres, folder: Path) -> AsyncIterator[Arena]:
    """The product's processes on `postgres`, ready to take jobs."""
    database_url = postgres.url()
    await migrate(database_url)
    token = await ensure_admin_token(database_url, folder / "data")
    assert token is not None
    port = _free_port()
    server_url = f"http://127.0.0.1:{port}"
    log = (folder / "bench.log").open("wb")
    environment = {**os.environ, "MAINSPRING_DATABASE_URL": database_url}
    children = [
        _start(
            ["server", "--port", str(port), "--data", str(folder / "data"), "--log-level", "warning"], environment, log
        )
    ]
    try:
        await _until_answered(f"{server_url}/healthz", children[0])
        environment.pop("MAINSPRING_DATABASE_URL")
        arguments = ["worker", "--server", server_url, "--token-file", str(folder / "data" / "admin-token")]
        children.append(
            _start([*arguments, "--app", "mainspring.bench.tasks:app", "--log-level", "warning"], environment, log)
        )
        arena = Arena(postgres, folder, database_url, server_url, token)
        await _until_worker(arena, children[1])
        yield arena
    finally:
        for child in reversed(children):
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        log.close()


def _start(arguments: list[str], environment: dict[str, str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "mainspring", *arguments],
        env=environment,
        stdout=log,
        stderr=log,
        stdin=subprocess.DEVNULL,
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def _until_answered(url: str, child: subprocess.Popen[bytes]) -> None:
    async with httpx.AsyncClient() as client, asyncio.timeout(_PATIENCE):
        while True:
            _check_alive(child, "server")
            try:
                if (await client.get(url)).status_code == 200:
                    return
            except httpx.TransportError:
                await asyncio.sleep(0.05)


async def _until_worker(arena: Arena, child: subprocess.Popen[bytes]) -> None:
    connection = await arena.connect()
    try:
        async with asyncio.timeout(_PATIENCE):
            while not await connection.fetchval("select exists (select from mainspring.workers where state = 1)"):
                _check_alive(child, "worker")
                await asyncio.sleep(0.05)
    finally:
        await connection.close()


def _check_alive(child: subprocess.Popen[bytes], name: str) -> None:
    if child.poll() is not None:
        raise Unavailable(f"the {name} process ended with {child.returncode} before the bench began")
