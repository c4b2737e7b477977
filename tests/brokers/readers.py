"""Reads all events that a broker has stored."""

from __future__ import annotations

import json
from typing import Any

import aio_pika
import nats
import redis.asyncio

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
    found = []
    if kind == "nats":
        client = await nats.connect(f"nats://127.0.0.1:{port}")
        reader = await client.jetstream().subscribe(TOPIC, ordered_consumer=True)
        info = await client.jetstream().stream_info(TOPIC)
        for _ in range(info.state.messages):
            found.append(json.loads((await reader.next_msg(timeout=10)).data))
        await client.close()
    elif kind == "redis":
        async with redis.asyncio.Redis(port=port) as store:
            found = [json.loads(fields[b"event"]) for _, fields in await store.xrange(TOPIC)]
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
