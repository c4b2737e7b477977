"""Events at brokers, and what is said if one does not take them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from mainspring.brokers import addresses
from mainspring.domain.errors import InvalidInput
from mainspring.domain.sinks.cloud_events import CloudEvent, NotTaken, cloud_event, windows
from mainspring.roles.notify_guard import notify_guard
from mainspring.roles.notify_transport import NetworkTransport
from mainspring.roles.sink_producers import NetworkProducers
from tests.brokers.readers import TOPIC, KafkaCluster, prepare, read_all
from tests.brokers.servers import NATS_ARGV, BrokerProcess, a_broker

pytestmark = pytest.mark.anyio

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def an_event(number: int, job: str = "j") -> CloudEvent:
    data = json.dumps({"number": number, "job_id": job}).encode()
    return cloud_event(number, NOW, "run.created", "default", f"r{number}", job, data)


def producers(allow: str = "127.0.0.1,localhost") -> NetworkProducers:
    guard = notify_guard(allow)
    return NetworkProducers(guard, NetworkTransport(guard))


@pytest.fixture(scope="module")
def nats() -> Iterator[BrokerProcess]:
    with a_broker(NATS_ARGV) as broker:
        yield broker


async def test_nats_drops_a_repeat_and_refuses_a_subject_without_a_stream(nats: BrokerProcess) -> None:
    await prepare("nats", nats.port)
    place = {"url": f"nats://127.0.0.1:{nats.port}", "topic": TOPIC}
    producer = await producers().open("nats", place, {})
    events = [an_event(number) for number in range(5)]
    assert await producer.send(events) == 5
    assert await producer.send([*events, an_event(5)]) == 6
    assert [event["data"]["number"] for event in await read_all("nats", nats.port)] == list(range(6))
    await producer.close()
    nowhere = await producers().open("nats", {**place, "topic": "nowhere"}, {})
    with pytest.raises(NotTaken, match="NoStreamResponse") as refused:
        await nowhere.send(events)
    assert refused.value.taken == 0
    await nowhere.close()


async def test_kafka_gets_the_binary_mode_in_the_order_of_each_job() -> None:
    cluster = KafkaCluster()
    producer = await producers().open("kafka", {"url": cluster.url, "topic": cluster.topic}, {})
    events = [an_event(number, f"job-{number % 3}") for number in range(30)]
    assert await producer.send(events) == 30
    await producer.close()
    found = await asyncio.to_thread(cluster.read, 30)
    for job in range(3):
        numbers = [one["data"]["number"] for one in found if one["data"]["job_id"] == f"job-{job}"]
        assert numbers == list(range(job, 30, 3))


@pytest.mark.parametrize("kind", ["nats", "redis", "rabbitmq", "kafka"])
async def test_addresses_that_are_not_allowed_are_not_called(kind: str) -> None:
    url = {"nats": "nats", "redis": "redis", "rabbitmq": "amqp", "kafka": "kafka"}[kind] + "://127.0.0.1:1"
    with pytest.raises(NotTaken, match="--notify-allow"):
        producer = await producers("").open(kind, {"url": url, "topic": "t"}, {})
        await producer.send([an_event(1)])


async def test_an_error_of_a_broker_has_no_secret(nats: BrokerProcess) -> None:
    with pytest.raises(NotTaken, match="no connection to localhost port 1") as refused:
        await producers().open("nats", {"url": "nats://localhost:1", "topic": "t", "user": "u"}, {"password": "hunter"})
    assert "hunter" not in str(refused.value)


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "find_spec", lambda _: None)
    with pytest.raises(InvalidInput) as missing:
        producers().check("kafka", {"url": "kafka://a.example.com"})
    assert missing.value.hint == "pip install 'mainspring[kafka]'"


def test_events_of_a_job_are_in_different_windows() -> None:
    events = [an_event(number, job) for number, job in enumerate("aabcaabb")]
    parts = list(windows(events, 2))
    assert [event for part in parts for event in part] == events
    assert all(len({event.key for event in part}) == len(part) <= 2 for part in parts)
