"""What puts numbered messages into a broker, each once, however often the broker is killed meanwhile."""

from __future__ import annotations

import asyncio
import os
from typing import Any
from uuid import uuid4

import aio_pika
import nats
from aiormq.exceptions import AMQPError
from confluent_kafka import Producer
from nats.errors import Error as NatsError
from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from tests.brokers.servers import NATS_ARGV, RABBITMQ_ARGV, REDIS_ARGV, BrokerProcess

PLACE = "orders"


class RedisPublisher:
    argv = REDIS_ARGV
    settings = {"stream": PLACE}  # noqa: RUF012
    kills_broker = True

    def url(self, broker: BrokerProcess) -> str:
        return f"redis://127.0.0.1:{broker.port}"

    async def prepare(self, broker: BrokerProcess) -> None:
        """The connector makes the stream and its group."""

    async def publish(self, broker: BrokerProcess, first: int, count: int) -> None:
        async with Redis(port=broker.port) as redis:
            for number in range(first, first + count):
                try:
                    await redis.xadd(PLACE, {"data": f'{{"n": {number}}}'}, id=f"{number + 1}-1")
                except ResponseError as error:
                    if "equal or smaller" not in str(error):  # otherwise it was stored, and the answer was lost
                        raise ConnectionError(error) from None
                except RedisError as error:
                    raise ConnectionError(number) from error


class NatsPublisher:
    argv = NATS_ARGV
    settings = {"stream": PLACE}  # noqa: RUF012
    kills_broker = True

    def url(self, broker: BrokerProcess) -> str:
        return f"nats://127.0.0.1:{broker.port}"

    async def prepare(self, broker: BrokerProcess) -> None:
        connection = await nats.connect(self.url(broker))
        stream = connection.jetstream()
        await stream.add_stream(name=PLACE, subjects=["orders.>"])
        # What a killed connector had is delivered again after a second, not after half a minute.
        config = nats.js.api.ConsumerConfig(ack_policy="explicit", ack_wait=1.0, durable_name="mainspring")
        await stream.add_consumer(PLACE, config)
        await connection.close()

    async def publish(self, broker: BrokerProcess, first: int, count: int) -> None:
        try:
            connection = await nats.connect(
                self.url(broker), allow_reconnect=False, connect_timeout=2, error_cb=_ignore
            )
            try:
                stream = connection.jetstream(timeout=2)
                for number in range(first, first + count):
                    value = f'{{"n": {number}}}'.encode()
                    await stream.publish("orders.paid", value, headers={"Nats-Msg-Id": str(number)})
            finally:
                await connection.close()
        except (NatsError, OSError) as error:
            raise ConnectionError(first) from error


class RabbitPublisher:
    argv = RABBITMQ_ARGV
    settings = {"queue": PLACE}  # noqa: RUF012
    kills_broker = True

    def url(self, broker: BrokerProcess) -> str:
        return f"amqp://guest:guest@127.0.0.1:{broker.port}/"

    async def prepare(self, broker: BrokerProcess) -> None:
        """A queue of each type; every message goes to both of them."""
        while True:
            try:
                async with await aio_pika.connect(self.url(broker)) as connection:
                    channel = await connection.channel()
                    exchange = await channel.declare_exchange("all", "fanout", durable=True)
                    for name, kind in ((f"{PLACE}-events", "quorum"), (f"{PLACE}-jobs", "classic")):
                        queue = await channel.declare_queue(name, durable=True, arguments={"x-queue-type": kind})
                        await queue.bind(exchange)
                return
            except (AMQPError, OSError):  # it listens before it is ready
                await asyncio.sleep(0.1)

    async def publish(self, broker: BrokerProcess, first: int, count: int) -> None:
        """What is published again has the same id."""
        try:
            async with await aio_pika.connect(self.url(broker), timeout=5) as connection:
                channel = await connection.channel()
                exchange = await channel.get_exchange("all")
                for number in range(first, first + count):
                    message = aio_pika.Message(f'{{"n": {number}}}'.encode(), message_id=str(number), delivery_mode=2)
                    await exchange.publish(message, "", timeout=5)
        except (AMQPError, OSError, TimeoutError) as error:
            raise ConnectionError(first) from error


class KafkaPublisher:
    """The mock cluster of librdkafka, which keeps nothing, or the broker that KAFKA_BOOTSTRAP names."""

    argv = None
    kills_broker = False

    def __init__(self) -> None:
        real = os.environ.get("KAFKA_BOOTSTRAP")
        mock = {"bootstrap.servers": "", "test.mock.num.brokers": 1}
        self._producer = Producer({"bootstrap.servers": real} if real else mock)
        brokers = self._producer.list_topics(timeout=10).brokers.values()
        self._bootstrap = real or ",".join(f"{one.host}:{one.port}" for one in brokers)
        self._topic = f"{PLACE}-{uuid4().hex[:8]}" if real else PLACE
        self.settings = {"topic": self._topic}

    def url(self, _: BrokerProcess) -> str:
        return f"kafka://{self._bootstrap}"

    async def prepare(self, _: BrokerProcess) -> None:
        """The first message makes the topic."""

    async def publish(self, _: BrokerProcess, first: int, count: int) -> None:
        for number in range(first, first + count):
            self._producer.produce(self._topic, f'{{"n": {number}}}'.encode(), key=str(number))
            self._producer.poll(0)
        await asyncio.to_thread(self._producer.flush, 30)


async def _ignore(_: Exception) -> None:
    """The calls raise their errors themselves."""


async def publish_all(publisher: Any, broker: BrokerProcess, first: int, end: int, at_once: int = 100) -> None:
    """All numbers from `first` on below `end`. After an outage a part is published again, which changes nothing."""
    for start in range(first, end, at_once):
        while True:
            try:
                await publisher.publish(broker, start, min(at_once, end - start))
                break
            except ConnectionError:
                await asyncio.sleep(0.05)
