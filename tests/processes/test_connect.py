"""Connectors, servers and brokers are killed while messages come in: none is lost, and none comes in twice."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.brokers.publishers import KafkaPublisher, NatsPublisher, RabbitPublisher, RedisPublisher, publish_all
from tests.brokers.servers import RABBITMQ, REDIS, a_broker
from tests.processes.cluster import SLOW, Cluster, eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

needs_redis = pytest.mark.skipif(REDIS is None, reason="redis-server is not installed")
needs_rabbitmq = pytest.mark.skipif(RABBITMQ is None, reason="rabbitmq-server is not installed")
BROKERS = [
    pytest.param(RedisPublisher, marks=needs_redis, id="redis"),
    pytest.param(NatsPublisher, id="nats"),
    pytest.param(RabbitPublisher, marks=needs_rabbitmq, id="rabbitmq"),
    pytest.param(KafkaPublisher, id="kafka"),
]


def sources_file(folder: Path, url: str, settings: dict[str, Any]) -> Path:
    """Two sources of the same messages: one emits events with ids of their own, one submits jobs."""
    first, second = {"url": url, **settings}, {"url": url, **settings, "group": "of-jobs"}
    if "queue" in settings:  # a queue has one reader: there are two of them
        first, second = ({"url": url, "queue": f"{settings['queue']}-{name}"} for name in ("events", "jobs"))
    path = folder / "connect.yaml"
    path.write_text(
        json.dumps(
            {
                "sources": [
                    {"name": "events", **first, "emit": {"name": "order.paid", "id": None}},
                    {"name": "jobs", **second, "submit": {"task": "shop.ship"}},
                ]
            }
        )
    )
    return path


async def come_in(cluster: Cluster, database_url: str, publisher: Any, count: int, kills: int) -> None:
    dice = random.Random(7)
    server = await cluster.server()
    with a_broker(publisher.argv) as broker:
        await publisher.prepare(broker)
        file = sources_file(cluster.folder, publisher.url(broker), publisher.settings)
        connector = cluster.connector(file)
        connection = await asyncpg.connect(database_url)
        publishing: asyncio.Task[None] | None = None
        try:
            for turn in range(kills + 1):
                before = (await _found(connection))[turn % 2][0]
                first, end = count * turn // (kills + 1), count * (turn + 1) // (kills + 1)
                publishing = asyncio.create_task(publish_all(publisher, broker, first, end))
                if turn == kills:
                    await publishing
                    break
                await eventually(_more_than(connection, turn % 2, before), 4 * SLOW, "messages come in")
                await asyncio.sleep(dice.random() * 0.2)  # the moment of the kill is what varies
                if turn % 3 == 0:
                    connector.send_signal(signal.SIGKILL)
                    connector.wait()
                    connector = cluster.connector(file)
                elif turn % 3 == 1:
                    server.send_signal(signal.SIGKILL)
                    server.wait()
                    server = await cluster.server()
                elif publisher.kills_broker:
                    broker.kill()
                    broker.start()
                await publishing
            await eventually(_all_in(connection, count), 4 * SLOW, "all messages come in")
            await eventually(_nothing_waits(connection), SLOW, "the brokers have no more of them")
            assert await _found(connection) == [(count, count), (count, count)]
        finally:
            if publishing is not None:
                publishing.cancel()
            await connection.close()


def _more_than(connection: asyncpg.Connection, of: int, before: int) -> Callable[[], Any]:
    async def look() -> bool:
        return (await _found(connection))[of][0] > before

    return look


def _all_in(connection: asyncpg.Connection, count: int) -> Callable[[], Any]:
    async def look() -> bool:
        return all(numbers == count for _, numbers in await _found(connection))

    return look


def _nothing_waits(connection: asyncpg.Connection) -> Callable[[], Any]:
    """The connectors say so from now on: nothing is delivered again."""
    began: list[datetime] = []

    async def look() -> bool:
        if not began:
            began.append(await connection.fetchval("select clock_timestamp()"))
        return bool(
            await connection.fetchval(
                "select count(distinct name) = 2 and bool_and(lag = 0 and seen_at > $1) from mainspring.sources"
                " where lag is not null",
                began[0],
            )
        )

    return look


async def _found(connection: asyncpg.Connection) -> list[tuple[int, int]]:
    """How many events and runs there are, and how many numbers they have."""
    return [
        tuple(await connection.fetchrow(f"select count(*), count(distinct payload ->> 'n') from mainspring.{table}"))
        for table in ("events", "runs")
    ]


@pytest.mark.parametrize("publisher", BROKERS)
async def test_some_messages_come_in_once_despite_kills(
    cluster: Cluster, database_url: str, publisher: Callable[[], Any]
) -> None:
    await come_in(cluster, database_url, publisher(), 300, 3)


@pytest.mark.long
@pytest.mark.parametrize("publisher", BROKERS)
async def test_ten_thousand_messages_come_in_once_despite_kills(
    cluster: Cluster, database_url: str, publisher: Callable[[], Any]
) -> None:
    await come_in(cluster, database_url, publisher(), 10_000, 18)
