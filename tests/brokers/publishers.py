"""What puts numbered messages into a broker, each once, however often the broker is killed meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import nats
from nats.errors import Error as NatsError
from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from tests.brokers.servers import NATS_ARGV, REDIS_ARGV, BrokerProcess

PLACE = "orders"


class RedisPublisher:
    argv = REDIS_ARGV
    settings = {"stream": PLACE}  # noqa: RUF012

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


async def _ignore(_: Exception) -> None:
    """The calls raise their errors themselves."""


async def publish_all(publisher: Any, broker: BrokerProcess, count: int, at_once: int = 100) -> None:
    """All numbers below `count`. After an outage a part is published again, which changes nothing."""
    for first in range(0, count, at_once):
        while True:
            try:
                await publisher.publish(broker, first, min(at_once, count - first))
                break
            except ConnectionError:
                await asyncio.sleep(0.05)
