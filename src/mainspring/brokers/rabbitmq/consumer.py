"""Reads a queue of RabbitMQ, classic or quorum. A message is delivered again until it is acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage
from aiormq.exceptions import AMQPError

from mainspring.brokers.connect_settings import SourceSettings
from mainspring.brokers.consumers import ANSWER_SECONDS, OPEN_SECONDS, BrokerMessage, Consumer


def make(settings: SourceSettings, connector: str) -> Consumer:
    return RabbitConsumer(settings, connector)


class RabbitConsumer:
    def __init__(self, settings: SourceSettings, connector: str) -> None:
        self._settings = settings
        self._name = connector
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None
        self._delivered: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()

    async def open(self) -> None:
        self._connection = await aio_pika.connect(
            self._settings.url, timeout=OPEN_SECONDS, client_properties={"connection_name": f"mainspring {self._name}"}
        )
        self._channel = await self._connection.channel()
        await self._channel.set_qos(prefetch_count=self._settings.prefetch, timeout=ANSWER_SECONDS)
        queue = await self._channel.declare_queue(self._settings.place, passive=True, timeout=ANSWER_SECONDS)
        await queue.consume(self._delivered.put, timeout=ANSWER_SECONDS)

    async def read(self, most: int, wait: float) -> list[BrokerMessage]:
        found: list[BrokerMessage] = []
        with suppress(TimeoutError):
            found.append(_message(await asyncio.wait_for(self._delivered.get(), wait)))
        while found and len(found) < most and not self._delivered.empty():
            found.append(_message(self._delivered.get_nowait()))
        if not found and (self._channel is None or self._channel.is_closed):
            raise ConnectionError("the connection to RabbitMQ is closed")
        return found

    async def settle(self, messages: Sequence[BrokerMessage]) -> list[str]:
        """Acknowledgements are not answered. RabbitMQ has seen them when it answers what follows."""
        assert self._channel is not None
        await messages[-1].receipt.ack(multiple=True)  # all before it are stored too
        await self._channel.declare_queue(self._settings.place, passive=True, timeout=ANSWER_SECONDS)
        return [message.id for message in messages if message.id is not None]

    async def lag(self) -> dict[str, int]:
        assert self._channel is not None
        queue = await self._channel.declare_queue(self._settings.place, passive=True, timeout=ANSWER_SECONDS)
        return {"": (queue.declaration_result.message_count or 0) + self._delivered.qsize()}

    async def close(self) -> None:
        if self._connection is not None:
            with suppress(AMQPError, OSError, RuntimeError, asyncio.TimeoutError):
                await asyncio.wait_for(self._connection.close(), ANSWER_SECONDS)
            self._connection = self._channel = None


def _message(one: AbstractIncomingMessage) -> BrokerMessage:
    headers = {name: _text(value) for name, value in one.headers.items()}
    if one.content_type:
        headers["content-type"] = one.content_type
    return BrokerMessage(one.body, one.message_id or None, headers=headers, topic=one.routing_key or "", receipt=one)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
