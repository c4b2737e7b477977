"""A process that is started while PostgreSQL is down or recovers waits for it. It exits at once only for what does not
pass by itself."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from mainspring.store.database import address_of
from mainspring.store.embedded import EmbeddedPostgres
from tests.pgbouncer import Pooling, a_pgbouncer, needs_pgbouncer
from tests.processes.cluster import START, Cluster, eventually, free_port
from tests.processes.recovering_postgres import RecoveringPostgres

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

Child = subprocess.Popen[bytes]
WAITING = "waiting for PostgreSQL"


@pytest.fixture
async def recovering(starter: Starter) -> AsyncIterator[RecoveringPostgres]:
    """The database of what `starter` begins."""
    made = RecoveringPostgres()
    try:
        await made.create()
        starter.database = {"MAINSPRING_DATABASE_URL": made.postgres.url()}
        yield made
    finally:
        await made.remove()


@pytest.fixture
async def starter() -> AsyncIterator[Starter]:
    folder = Path(tempfile.mkdtemp(prefix="ms-waiting-", dir="/tmp"))
    made = Starter(folder, f"postgresql://ada@/shop?host={folder}")
    try:
        yield made
    finally:
        await made.close()
        shutil.rmtree(folder, ignore_errors=True)


class Starter(Cluster):
    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(url, "unused", folder)
        self.database = {"MAINSPRING_DATABASE_URL": url}

    def begin(self, *arguments: str, **variables: str) -> Child:
        return self._start(list(arguments), {**self.database, **variables})

    def begin_server(self, *options: str, **variables: str) -> tuple[Child, str]:
        """A server with a folder of its own, and its address."""
        port = free_port()
        place = ["--port", str(port), "--data", str(self.folder / str(port))]
        return self.begin("server", *place, *options, **variables), f"http://127.0.0.1:{port}"

    async def waits(self, child: Child, because: str) -> None:
        async def said() -> bool:
            assert child.poll() is None, self.said(child)
            return WAITING in self.said(child)

        await eventually(said, START, "it says that it waits")
        assert because in self.said(child)

    async def serves(self, child: Child, url: str) -> None:
        async def healthy() -> bool:
            assert child.poll() is None, self.said(child)
            return await self._healthy(url)

        await eventually(healthy, START, "the server answers")

    async def exits(self, child: Child) -> int:
        return await asyncio.wait_for(asyncio.to_thread(child.wait), START)


async def test_everything_that_uses_a_database_waits_while_it_recovers(
    recovering: RecoveringPostgres, starter: Starter
) -> None:
    await recovering.start()
    server, server_url = starter.begin_server()
    scheduler = starter.begin("scheduler")
    migrating = starter.begin("migrate")
    up_port = free_port()
    up = starter.begin("up", "--port", str(up_port), "--data", str(starter.folder / "up"))
    stopped, _ = starter.begin_server()
    interrupted = starter.begin("scheduler")
    for child in (server, scheduler, migrating, up, stopped, interrupted):
        await starter.waits(child, "the database system is starting up")
    stopped.send_signal(signal.SIGTERM)
    interrupted.send_signal(signal.SIGINT)
    for child in (stopped, interrupted):
        assert await starter.exits(child) == 0, starter.said(child)
        assert "stopped before the start was complete" in starter.said(child)
    assert [child.poll() for child in (server, scheduler, migrating, up)] == [None] * 4
    await recovering.go_on()
    await starter.serves(server, server_url)
    await starter.serves(up, f"http://127.0.0.1:{up_port}")
    assert await starter.exits(migrating) == 0, starter.said(migrating)
    await eventually(_says(starter, scheduler, '"scheduling"'), START, "the scheduler works")
    up.send_signal(signal.SIGTERM)
    assert await starter.exits(up) == 0, starter.said(up)


async def test_up_that_waits_stops_when_it_is_asked(recovering: RecoveringPostgres, starter: Starter) -> None:
    await recovering.start()
    up = starter.begin("up", "--port", str(free_port()), "--data", str(starter.folder / "up"))
    await starter.waits(up, "the database system is starting up")
    up.send_signal(signal.SIGINT)
    assert await starter.exits(up) == 0, starter.said(up)


async def test_a_server_waits_for_a_postgresql_that_is_not_there_yet(
    recovering: RecoveringPostgres, starter: Starter
) -> None:
    server, url = starter.begin_server()
    await starter.waits(server, "is missing")
    await recovering.start()
    await recovering.go_on()
    await starter.serves(server, url)


@needs_pgbouncer
@pytest.mark.parametrize("mode", [Pooling.SESSION, Pooling.TRANSACTION])
async def test_a_server_waits_for_the_postgresql_behind_a_pgbouncer(
    recovering: RecoveringPostgres, starter: Starter, mode: Pooling
) -> None:
    with a_pgbouncer(recovering.postgres, mode) as bouncer:
        await recovering.start()
        through = {"MAINSPRING_DATABASE_URL": bouncer.url(recovering.postgres.url()), "MAINSPRING_PGBOUNCER": mode}
        server, url = starter.begin_server(**through)
        await starter.waits(server, "")
        await recovering.go_on()
        await starter.serves(server, url)


@pytest.mark.parametrize("wait", ["0", "1s"])
async def test_the_wait_has_an_end(starter: Starter, wait: str) -> None:
    server, _ = starter.begin_server("--database-wait", wait)
    assert await starter.exits(server) == 6
    assert (WAITING in starter.said(server)) is (wait != "0")
    assert "error: the socket" in starter.said(server) and "is missing" in starter.said(server)


async def test_what_does_not_pass_by_itself_ends_the_start_at_once(
    starter: Starter, postgres: EmbeddedPostgres
) -> None:
    url = postgres.url("postgres")
    wrong = {
        url.replace(f"/{address_of(url).database}?", "/nosuch?"): 3,
        url.partition("&passfile")[0]: 5,
        url.replace("//mainspring_owner@", "//nobody_there@"): 5,
        "postgresql://ada@no-such-host.invalid/shop": 6,
    }
    children = [starter.begin("scheduler", MAINSPRING_DATABASE_URL=each) for each in wrong]
    assert [await starter.exits(child) for child in children] == list(wrong.values())
    for child in children:
        assert WAITING not in starter.said(child), starter.said(child)


def _says(starter: Starter, child: Child, words: str) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        assert child.poll() is None, starter.said(child)
        return words in starter.said(child)

    return look
