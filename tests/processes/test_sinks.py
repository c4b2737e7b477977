"""Changes reach a broker while servers and the broker are killed: none is lost, and those of a job are in order."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator
from contextlib import ExitStack

import asyncpg
import pytest

from tests.brokers.readers import TOPIC, Event, KafkaCluster, prepare, read_all
from tests.brokers.servers import NATS_ARGV, RABBITMQ_ARGV, REDIS_ARGV, a_broker
from tests.processes.cluster import SLOW, Cluster, eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

JOBS = 50
BROKERS = {"nats": ("nats", NATS_ARGV), "redis": ("redis", REDIS_ARGV), "rabbitmq": ("amqp", RABBITMQ_ARGV)}
OPTIONS = ["--notify-allow", "127.0.0.1,localhost"]


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    opened = await asyncpg.connect(database_url)
    yield opened
    await opened.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["nats", "redis"])
async def test_every_change_reaches_the_broker(kind: str, cluster: Cluster, connection: asyncpg.Connection) -> None:
    await changes_with_kills(kind, cluster, connection, rounds=20, kills=2)


@pytest.mark.long
@pytest.mark.parametrize("kind", [*BROKERS, "kafka"])
async def test_ten_thousand_changes_reach_the_broker(
    kind: str, cluster: Cluster, connection: asyncpg.Connection
) -> None:
    await changes_with_kills(kind, cluster, connection, rounds=200, kills=6)


async def changes_with_kills(
    kind: str, cluster: Cluster, connection: asyncpg.Connection, *, rounds: int, kills: int
) -> None:
    """`rounds` changes of each of 50 jobs. The version of a job tells their order."""
    dice = random.Random(rounds)
    moments = set(dice.sample(range(rounds), kills))
    with ExitStack() as stack:
        broker, kafka, url, topic = None, None, "", TOPIC
        if kind == "kafka":
            kafka = KafkaCluster()
            url, topic = kafka.url, kafka.topic
        else:
            scheme, argv = BROKERS[kind]
            broker = stack.enter_context(a_broker(argv))
            await prepare(kind, broker.port)
            url = f"{scheme}://127.0.0.1:{broker.port}"
        server = await cluster.server(options=OPTIONS)
        jobs = [{"task": "noop", "schedule": "manual", "job_id": f"j{number}"} for number in range(JOBS)]
        await cluster.submit_all(jobs)
        body = {"kind": kind, "url": url, "topic": topic, "on": ["job.changed"]}
        made = await cluster.http.put("/v1/sinks/out", json=body)
        assert made.status_code in (200, 201), made.text
        for number in range(rounds):
            await connection.execute("update mainspring.jobs set version = version + 1")
            if number in moments:
                if number % 2 or broker is None:
                    server.send_signal(signal.SIGKILL)
                    server.wait()
                    server = await cluster.server(options=OPTIONS)
                else:
                    broker.kill()
                    broker.start()

        async def all_sent() -> bool:
            view = (await cluster.http.get("/v1/sinks/out")).json()
            return view["waiting"] == 0

        # A killed server has a lease of 10 s, and a broker that was away is asked again after at most so long.
        await eventually(all_sent, 6 * SLOW, "all changes are sent")
        if kafka is not None:
            check_order(await asyncio.to_thread(kafka.read, rounds * JOBS), rounds)
        else:
            assert broker is not None
            check_order(await read_all(kind, broker.port), rounds)


def check_order(events: list[Event], rounds: int) -> None:
    """None is missing, and what is sent again has the same id: without repeats each job is in order."""
    seen: set[str] = set()
    versions: dict[str, list[int]] = {}
    for event in events:
        if event["id"] not in seen:
            seen.add(event["id"])
            versions.setdefault(event["data"]["job_id"], []).append(event["data"]["version"])
    assert len(versions) == JOBS
    assert all(found == list(range(2, rounds + 2)) for found in versions.values())
