"""The pulse: PostgreSQL's silence is noticed within two seconds, and a standstill of our own is not taken for it."""

from __future__ import annotations

import os
import signal
import threading
import time
from asyncio import create_task, sleep, start_server, wait_for
from asyncio.streams import StreamReader, StreamWriter

import asyncpg
import pytest

from mainspring.store.pulse import Pulse

pytestmark = pytest.mark.anyio
BACKEND = (
    "select pid from pg_stat_activity where application_name = 'mainspring pulse' and datname = current_database()"
)


async def test_a_postgresql_that_does_not_answer_is_away_until_it_does(
    database_url: str, connection: asyncpg.Connection
) -> None:
    pulse, told = Pulse(database_url), []
    pulse.on_away(lambda: told.append(time.monotonic()))
    assert await pulse.run_once()
    backend = await connection.fetchval(BACKEND)
    os.kill(backend, signal.SIGSTOP)
    try:
        asked = time.monotonic()
        assert not await pulse.run_once()
        assert pulse.away and told[0] - asked >= 1.0
    finally:
        os.kill(backend, signal.SIGCONT)
    assert await pulse.run_once()
    assert not pulse.away
    await pulse.close()


async def test_one_that_does_not_even_greet_is_away() -> None:
    async def say_nothing(_: StreamReader, __: StreamWriter) -> None: ...

    server = await start_server(say_nothing, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    pulse = Pulse(f"postgresql://nobody@127.0.0.1:{port}/nothing?sslmode=disable")
    assert not await wait_for(pulse.run_once(), 60)
    server.close()


async def test_a_machine_that_stood_still_has_not_lost_its_database(
    database_url: str, connection: asyncpg.Connection
) -> None:
    pulse = Pulse(database_url)
    assert await pulse.run_once()
    backend = await connection.fetchval(BACKEND)
    os.kill(backend, signal.SIGSTOP)
    try:
        asking = create_task(pulse.run_once())
        await sleep(0.05)
        threading.Event().wait(2.0)  # nothing in this process moves, and nothing of PostgreSQL's
    finally:
        os.kill(backend, signal.SIGCONT)
    assert await asking
    await pulse.close()
