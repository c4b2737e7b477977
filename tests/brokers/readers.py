"""Reads all events that a broker has stored."""

from __future__ import annotations

import json
import os
from typing import Any
from uuid import uuid4

import aio_pika
import nats
import redis.asyncio
from confluent_kafka import Consumer, Producer

TOPIC = "changes"
Event = dict[str, Any]


async def prepare(kind: str, port: int) -> None:
    """What has to be there before a sink can send: a stream with the subject, a durable queue."""
    if kind == "nats":
        client = await nats.connect(f"nats://127.0.0.1:{port}")
        await client.jetstream().add_stream(name=TOPIC, subjects=[TOPIC])
        await client.close()
    if kind == "rabbitmq":
        connection = await aio_pika.connect(port=port)
        channel = await connection.channel()
        await channel.declare_queue(TOPIC, durable=True)
        await connection.close()


async def read_all(kind: str, port: int) -> list[Event]:
    found: list[Event] = []
    if kind == "nats":
        client = await nats.connect(f"nats://127.0.0.1:{port}")
        reader = await client.jetstream().subscribe(TOPIC, ordered_consumer=True)
        info = await client.jetstream().stream_info(TOPIC)
        found = [json.loads((await reader.next_msg(timeout=10)).data) for _ in range(info.state.messages)]
        await client.close()
    elif kind == "redis":
        async with redis.asyncio.Redis(port=port) as store:
            found, after = [], b"-"
            while part := await store.xrange(
                TOPIC, min=after, count=500
            ):  # the whole stream takes longer than an answer may
                found += [json.loads(fields[b"event"]) for _, fields in part]
                after = b"(" + part[-1][0]
    else:
        connection = await aio_pika.connect(port=port)
        queue = await (await connection.channel()).get_queue(TOPIC)
        count = queue.declaration_result.message_count or 0
        for _ in range(count):
            message = await queue.get(no_ack=True, timeout=10)
            assert message is not None
            found.append(json.loads(message.body))
        await connection.close()
    return found


class KafkaCluster:
    """The mock cluster of librdkafka, which keeps nothing, or the broker that KAFKA_BOOTSTRAP names."""

    def __init__(self) -> None:
        real = os.environ.get("KAFKA_BOOTSTRAP")
        mock = {"bootstrap.servers": "", "test.mock.num.brokers": 3}
        self._owner = Producer({"bootstrap.servers": real} if real else mock)  # the mock cluster lives in it
        brokers = self._owner.list_topics(timeout=10).brokers.values()
        self._bootstrap = real or ",".join(f"{one.host}:{one.port}" for one in brokers)
        self.url = f"kafka://{self._bootstrap}"
        self.topic = f"{TOPIC}-{uuid4().hex[:8]}"

    def read(self, enough: int) -> list[Event]:
        """Events in the order of each partition, until `enough` different ones are there, and what follows."""
        reader = Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": uuid4().hex, "auto.offset.reset": "earliest"}
        )
        reader.subscribe([self.topic])
        found, ids, quiet = [], set[str](), 0
        while quiet < (1 if len(ids) >= enough else 20):
            message = reader.poll(1.0)
            if message is None or message.error():
                quiet += 1
                continue
            quiet = 0
            headers = {name: value.decode() for name, value in message.headers()}
            assert (headers["ce_specversion"], headers["content-type"]) == ("1.0", "application/json")
            data = json.loads(message.value())
            assert message.key().decode() == data["job_id"]
            ids.add(headers["ce_id"])
            found.append({"id": headers["ce_id"], "data": data})
        reader.close()
        return found
