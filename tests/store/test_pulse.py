"""The pulse notices within two seconds that PostgreSQL does not answer. A pause of the own process does not count."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from asyncio import Event, create_task, sleep, start_server, wait_for
from asyncio.streams import StreamReader, StreamWriter

import asyncpg
import pytest

from mainspring.kernel.clock import ManualClock
from mainspring.kernel.lifecycle import Outage
from mainspring.store import pulse as module
from mainspring.store.database import Database
from mainspring.store.pool import connect
from mainspring.store.pooled_connection import StoreConnection
from mainspring.store.pulse import Pulse
from tests.processes.cluster import SLOW, eventually

pytestmark = pytest.mark.anyio


async def a_pulse(database_url: str) -> tuple[Pulse, int]:
    """A pulse that has been answered, and the pid of the backend."""
    pulse = Pulse(database_url)
    await eventually(pulse.run_once, SLOW, "PostgreSQL answers")
    assert pulse._connection is not None
    return pulse, pulse._connection.get_server_pid()


async def test_a_postgresql_that_does_not_answer_is_away_until_it_does(database_url: str) -> None:
    pulse, backend = await a_pulse(database_url)
    told: list[float] = []
    pulse.on_away(lambda: told.append(time.monotonic()))
    os.kill(backend, signal.SIGSTOP)
    try:
        asked = time.monotonic()
        assert not await pulse.run_once()
        assert pulse.away and told[0] - asked >= 1.0
    finally:
        os.kill(backend, signal.SIGCONT)
    await eventually(pulse.run_once, SLOW, "PostgreSQL answers again")
    assert not pulse.away
    await pulse.close()


async def test_one_that_does_not_even_greet_is_away() -> None:
    async def say_nothing(_: StreamReader, __: StreamWriter) -> None: ...

    server = await start_server(say_nothing, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    pulse = Pulse(f"postgresql://nobody@127.0.0.1:{port}/nothing?sslmode=disable")
    assert not await wait_for(pulse.run_once(), 60)
    server.close()


async def test_a_machine_that_stood_still_has_not_lost_its_database(database_url: str) -> None:
    pulse, backend = await a_pulse(database_url)
    assert pulse._connection is not None
    answers = pulse._connection._transport.get_extra_info("socket")
    os.kill(backend, signal.SIGSTOP)
    try:
        asking = create_task(pulse.run_once())
        await sleep(0.05)
        threading.Event().wait(2.0)  # neither this process nor PostgreSQL continues
    finally:
        os.kill(backend, signal.SIGCONT)
    select.select([answers], [], [], SLOW)  # PostgreSQL continues first
    assert await asking
    await pulse.close()


async def test_an_outage_is_said_at_once_and_then_every_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(module.log, "warning", lambda event, **fields: said.append(f"{event} {fields.get('away_for')}"))
    clock, outage = ManualClock(), Outage()
    pulse = Pulse("postgresql://nobody@127.0.0.1:1/nothing", outage, clock)
    for _ in range(24):
        assert not await pulse.run_once()
        clock.advance(0.5)
    assert outage.away
    assert said == [
        "PostgreSQL is away; trying again None",
        "PostgreSQL is still away 5.0",
        "PostgreSQL is still away 10.0",
    ]


async def test_a_connection_that_takes_longer_than_a_check_ends_the_outage(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On an overloaded machine every new connection does."""
    monkeypatch.setattr(module, "_PATIENCE", 0.03)
    opened: list[Event] = []

    async def slowly(where: Database, *, application: str, timeout: float) -> asyncpg.Connection:
        opened.append(Event())
        await opened[-1].wait()
        return await connect(where, application=application, timeout=timeout)

    monkeypatch.setattr(module, "connect", slowly)
    clock = ManualClock()
    pulse, cuts = Pulse(database_url, clock=clock), []
    pulse.on_outage(lambda: cuts.append(clock.monotonic()))
    for _ in range(21):
        assert not await pulse.run_once() and pulse.away
        clock.advance(1.0)
    assert len(opened) == 1 and len(cuts) == 3  # one attempt, and at most a cut every ten seconds
    opened[0].set()
    await eventually(pulse.run_once, SLOW, "PostgreSQL answers")
    assert not pulse.away and len(opened) == 1
    await pulse.close()


async def test_array_types_of_postgresql_are_asked_for_once(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoreConnection, "_asked", {})
    asked: list[object] = []
    ask = asyncpg.Connection._introspect_types

    async def counted(self: asyncpg.Connection, *arguments: object) -> object:
        asked.append(arguments)
        return await ask(self, *arguments)

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", counted)
    for _ in range(2):
        connection = await connect(database_url, application="test")
        assert await connection.fetchval("select $1::int[]", [1, 2]) == [1, 2]
        await connection.close()
    assert len(asked) == 1
    connection = await connect(database_url, application="test")
    await connection.execute("create type pair as (a int, b int[])")
    assert await connection.fetchval("select row(1, '{2}')::pair") == (1, [2])  # one of a user is asked for each time
    await connection.close()
    assert len(asked) == 2
