"""Heartbeats: the reply to an exchange acknowledges its heartbeat, so it is sent after the heartbeat's commit."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import asyncpg
import httpx
import pytest

from mainspring.kernel.clock import ManualClock, SystemClock
from tests.operations.hand_worker import HandWorker
from tests.operations.servers import another_server
from tests.operations.waiting import until

pytestmark = pytest.mark.anyio

BEATS = " union all ".join(f"select at, worker_ids from mainspring.worker_beats_{table}" for table in (0, 1))


async def test_an_idle_exchange_is_acknowledged_only_after_its_beat_is_committed(
    api: httpx.AsyncClient, connection: asyncpg.Connection, database_url: str
) -> None:
    worker = HandWorker(api)
    watcher = await asyncpg.connect(database_url)
    try:
        async with connection.transaction():
            await connection.execute("lock table mainspring.worker_beats_0, mainspring.worker_beats_1")
            answer = asyncio.create_task(worker.hello())

            async def beat_waits() -> bool:
                waiting = (
                    "select count(*) from pg_locks where not granted and relation::regclass::text like '%worker_beats%'"
                )
                return bool(await watcher.fetchval(waiting))

            await until(beat_waits)
            assert not answer.done()
            assert await connection.fetch(BEATS) == []
        assert (await answer).seq == 1
    finally:
        await watcher.close()
    [beat] = await connection.fetch(BEATS)
    assert beat["worker_ids"] == [worker.worker_id]


async def test_a_beat_that_cannot_be_recorded_is_not_acknowledged(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    worker = HandWorker(api)
    await connection.execute("alter table mainspring.worker_beats_0 add constraint no check (false) not valid")
    await connection.execute("alter table mainspring.worker_beats_1 add constraint no check (false) not valid")
    answer = await worker.ask(hello=worker.card)
    assert answer.status_code >= 500
    assert await connection.fetch(BEATS) == []


async def test_beats_that_come_together_share_a_row(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    workers = [HandWorker(api) for _ in range(20)]
    await asyncio.gather(*(worker.hello() for worker in workers))
    beats = await connection.fetch(BEATS)
    heard = [worker_id for beat in beats for worker_id in beat["worker_ids"]]
    assert sorted(heard) == sorted(worker.worker_id for worker in workers)
    assert len(beats) < 20


async def test_a_beat_is_recorded_again_once_it_is_older_than_the_slack(
    connection: asyncpg.Connection, database_url: str
) -> None:
    clock = ManualClock(datetime(2026, 11, 15, tzinfo=UTC))
    async with another_server(database_url, clock=clock) as server:
        worker = HandWorker(server)
        await worker.hello()
        counts = []
        for seconds in (0.0, 0.4, 0.2, 0.5, 2.0):
            clock.advance(seconds)
            await worker.exchange()
            counts.append(len(await connection.fetch(BEATS)))
    assert counts == [1, 1, 2, 3, 4]


async def test_a_beat_at_either_server_counts(
    api: httpx.AsyncClient, connection: asyncpg.Connection, database_url: str
) -> None:
    worker = HandWorker(api)
    await worker.hello()
    async with another_server(database_url) as other:
        worker.api = other
        await worker.exchange()
    beats = await connection.fetch(BEATS)
    assert len(beats) == 2
    [shown] = (await api.get("/v1/workers")).json()["workers"]
    assert datetime.fromisoformat(shown["last_beat_at"]) == max(beat["at"] for beat in beats)


class MinuteAhead(SystemClock):
    """The clock of a machine that is a minute ahead of the others."""

    def wall(self) -> datetime:
        return super().wall() + timedelta(minutes=1)


async def test_servers_whose_clocks_differ_by_a_minute_write_to_the_same_table(
    api: httpx.AsyncClient, connection: asyncpg.Connection, database_url: str
) -> None:
    async def turn() -> tuple[int, float]:
        minutes, seconds = divmod(float(await connection.fetchval("select extract(epoch from clock_timestamp())")), 60)
        return int(minutes) % 2, seconds

    async with another_server(database_url, clock=MinuteAhead()) as other:
        while True:  # until both beats are within one minute
            await connection.execute("truncate mainspring.worker_beats_0, mainspring.worker_beats_1")
            table, seconds = await turn()
            await asyncio.gather(HandWorker(api).hello(), HandWorker(other).hello())
            if seconds > 1 and (await turn())[0] == table:
                break
    counts = [await connection.fetchval(f"select count(*) from mainspring.worker_beats_{n}") for n in (0, 1)]
    assert counts[table] == 2
    assert counts[1 - table] == 0
