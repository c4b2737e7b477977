"""Brokers over TLS and with a user: NATS and Redis are real, of Kafka and RabbitMQ what their libraries are told."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import Any

import aio_pika
import pytest
import redis.asyncio
from nats.aio.client import Client

from mainspring.brokers.connect_settings import SourceSettings
from mainspring.brokers.kafka import producer as kafka_producer
from mainspring.brokers.kafka.consumer import connection_settings
from mainspring.brokers.nats import consumer as nats_consumer
from mainspring.brokers.redis import consumer as redis_consumer
from mainspring.domain.sinks.cloud_events import NotTaken
from tests.brokers.readers import TOPIC
from tests.brokers.servers import NATS_ARGV, REDIS, REDIS_ARGV, BrokerProcess, a_broker
from tests.certificates import Authority
from tests.sinks.test_producers import an_event, producers

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

USER, PASSWORD = "sink", "hunter-2"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def trusted(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of this process trust the authority, as they trust those of the system."""
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))


@pytest.fixture(scope="module")
def nats(authority: Authority) -> Iterator[BrokerProcess]:
    issued = authority.issue("nats", "DNS:localhost")
    tls = ["--tls", "--tlscert", str(issued.cert), "--tlskey", str(issued.key), "--user", USER, "--pass", PASSWORD]
    with a_broker([*NATS_ARGV, *tls]) as broker:
        yield broker


@pytest.fixture(scope="module")
def redis_server(authority: Authority) -> Iterator[BrokerProcess]:
    if REDIS is None:
        pytest.skip("redis-server is not installed")
    issued = authority.issue("redis", "DNS:localhost")
    files = ["--tls-cert-file", issued.cert, "--tls-key-file", issued.key, "--tls-ca-cert-file", authority.ca]
    argv = [part if part != "--port" else "--tls-port" for part in REDIS_ARGV]
    more = ["--port", "0", *map(str, files), "--tls-auth-clients", "no", "--user", USER, "on", f">{PASSWORD}", "~*",
            "&*", "+@all", "--user", "default", "off"]  # fmt: skip
    with a_broker([*argv, *more]) as broker:
        yield broker


async def test_nats_over_tls_with_a_user(nats: BrokerProcess, authority: Authority, trusted: None) -> None:
    client = Client()
    context = ssl.create_default_context(cafile=str(authority.ca))
    url = f"tls://localhost:{nats.port}"
    await client.connect(url, tls=context, user=USER, password=PASSWORD)
    await client.jetstream().add_stream(name="tls", subjects=[TOPIC])
    place = {"url": url, "topic": TOPIC, "user": USER}
    producer = await producers().open("nats", place, {"password": PASSWORD})
    assert await producer.send([an_event(1)]) == 1
    await producer.close()
    with pytest.raises(NotTaken, match=r"(?i)authorization") as refused:
        await producers().open("nats", place, {"password": "wrong-password"})
    assert "wrong-password" not in str(refused.value)
    consumer = nats_consumer.make(source("nats", f"tls://{USER}:{PASSWORD}@localhost:{nats.port}", "tls"), "c")
    await consumer.open()
    [message] = await consumer.read(10, 5.0)
    assert b'"number":1' in message.value.replace(b" ", b"")
    await consumer.close()
    await client.close()


async def test_redis_over_tls_with_a_user(redis_server: BrokerProcess, authority: Authority, trusted: None) -> None:
    place = {"url": f"rediss://localhost:{redis_server.port}", "topic": TOPIC, "user": USER}
    producer = await producers().open("redis", place, {"password": PASSWORD})
    assert await producer.send([an_event(1)]) == 1
    await producer.close()
    with pytest.raises(NotTaken, match=r"WRONGPASS|invalid username-password") as refused:
        await (await producers().open("redis", place, {"password": "wrong-password"})).send([an_event(2)])
    assert "wrong-password" not in str(refused.value)
    whole = f"rediss://{USER}:{PASSWORD}@localhost:{redis_server.port}"
    consumer = redis_consumer.make(source("redis", whole, TOPIC), "c")
    await consumer.open()
    [message] = await consumer.read(10, 5.0)
    assert message.headers is not None
    await consumer.close()
    async with redis.asyncio.Redis.from_url(whole, ssl_ca_certs=str(authority.ca)) as client:
        assert await client.xlen(TOPIC) == 1


@pytest.mark.parametrize("kind", ["nats", "redis"])
async def test_a_certificate_of_nobody_is_refused(kind: str, request: pytest.FixtureRequest) -> None:
    """The authority is not trusted here."""
    server = request.getfixturevalue("nats" if kind == "nats" else "redis_server")
    scheme = {"nats": "tls", "redis": "rediss"}[kind]
    place = {"url": f"{scheme}://localhost:{server.port}", "topic": TOPIC, "user": USER}
    with pytest.raises(NotTaken, match=r"(?i)certificate") as refused:
        await (await producers().open(kind, place, {"password": PASSWORD})).send([an_event(1)])
    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize("kind", ["nats", "redis"])
async def test_a_certificate_of_another_name_is_refused(
    kind: str, request: pytest.FixtureRequest, trusted: None
) -> None:
    server = request.getfixturevalue("nats" if kind == "nats" else "redis_server")
    scheme = {"nats": "tls", "redis": "rediss"}[kind]
    place = {"url": f"{scheme}://127.0.0.1:{server.port}", "topic": TOPIC, "user": USER}
    with pytest.raises(NotTaken, match=r"(?i)certificate|mismatch"):
        await (await producers().open(kind, place, {"password": PASSWORD})).send([an_event(1)])


class _Told(Exception):
    pass


async def test_what_kafka_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {}

    def producer(**given: Any) -> Any:
        told.update(given)
        raise _Told

    monkeypatch.setattr(kafka_producer, "AIOKafkaProducer", producer)
    expected = {
        ("kafka", False): ("PLAINTEXT", "SCRAM-SHA-256"), ("kafka", True): ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
        ("kafkas", False): ("SSL", "PLAIN"), ("kafkas", True): ("SASL_SSL", "PLAIN"),
    }  # fmt: skip
    for (scheme, with_user), (protocol, mechanism) in expected.items():
        place = {"url": f"{scheme}://localhost:9", "topic": "t"} | ({"user": USER} if with_user else {})
        with pytest.raises(_Told):
            await producers().open("kafka", place, {"password": PASSWORD} if with_user else {})
        assert (told["security_protocol"], told["sasl_mechanism"]) == (protocol, mechanism)
        assert (told["sasl_plain_username"], told["sasl_plain_password"]) == (
            (USER, PASSWORD) if with_user else (None, None)
        )
        context = told["ssl_context"]
        assert context is None if scheme == "kafka" else context.check_hostname and context.verify_mode


def test_what_kafka_is_told_of_a_source() -> None:
    given = connection_settings("kafkas://a%40b:p%2Fw@x:1,y:2?mechanism=SCRAM-SHA-512")
    assert given.pop("ssl_context").verify_mode is ssl.CERT_REQUIRED
    assert given == {
        "bootstrap_servers": ["x:1", "y:2"], "security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "a@b", "sasl_plain_password": "p/w",
    }  # fmt: skip
    assert connection_settings("kafka://x:1") == {"bootstrap_servers": ["x:1"], "security_protocol": "PLAINTEXT"}


async def test_what_rabbitmq_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {}

    async def connect(**given: Any) -> Any:
        told.update(given)
        raise OSError(f"no route for {PASSWORD}")

    monkeypatch.setattr(aio_pika, "connect", connect)
    place = {"url": "amqps://localhost:9/v", "topic": "t", "user": USER}
    with pytest.raises(NotTaken, match="no route for") as refused:
        await producers().open("rabbitmq", place, {"password": PASSWORD})
    assert PASSWORD not in str(refused.value)
    assert (told["host"], told["ssl"], told["login"], told["password"]) == ("localhost", True, USER, PASSWORD)
    assert told["ssl_context"].check_hostname and told["virtualhost"] == "v"
    with pytest.raises(NotTaken):
        await producers().open("rabbitmq", {**place, "url": "amqp://localhost:9"}, {"password": PASSWORD})
    assert (told["ssl"], told["ssl_context"], told["virtualhost"]) == (False, None, "/")


def source(kind: str, url: str, place: str) -> SourceSettings:
    return SourceSettings("s", kind, url, place, "group", "beginning", "raw")
