"""Publishes to RabbitMQ. An event is taken when the broker has confirmed it: it lies in a queue, on disk if the queue
is durable. One that no queue takes is refused."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import aio_pika
from aio_pika.abc import AbstractConnection, AbstractExchange
from aiormq.exceptions import AMQPError

from mainspring.brokers.addresses import BrokerAddress
from mainspring.brokers.reach import AllowedAddresses
from mainspring.brokers.windows import in_words, send_windows
from mainspring.domain.sinks.cloud_events import STRUCTURED, CloudEvent, NotTaken

_CONNECT, _ANSWER = 10.0, 15.0  # seconds


async def open_rabbitmq(
    address: BrokerAddress, settings: Mapping[str, Any], secrets: Mapping[str, str], reach: AllowedAddresses
) -> RabbitProducer:
    [(host, port)] = address.hosts
    checked = (await reach.addresses(address.scheme, host, port))[0]
    connection: AbstractConnection | None = None
    try:
        # TLS verifies the certificate of the name, so that the name cannot lead elsewhere.
        connection = await aio_pika.connect(
            host=host if address.tls else checked, port=port, login=settings.get("user") or "guest",
            password=secrets.get("password") or "guest", virtualhost=address.path or "/", ssl=address.tls,
            ssl_context=ssl.create_default_context() if address.tls else None, timeout=_CONNECT,
        )  # fmt: skip
        channel = await connection.channel(publisher_confirms=True)
        name = settings.get("exchange")
        exchange = channel.default_exchange if not name else await channel.get_exchange(name, ensure=True)
    except (OSError, AMQPError, TimeoutError) as error:
        if connection is not None:
            await connection.close()
        raise NotTaken(f"no connection to {host} port {port}: {in_words(error, secrets)}") from None
    return RabbitProducer(connection, exchange, str(settings["topic"]), secrets)


class RabbitProducer:
    def __init__(
        self, connection: AbstractConnection, exchange: AbstractExchange, routing_key: str, secrets: Mapping[str, str]
    ) -> None:
        self._connection = connection
        self._exchange = exchange
        self._routing_key = routing_key
        self._secrets = secrets

    async def send(self, events: Sequence[CloudEvent]) -> int:
        return await send_windows(events, self._publish, self._secrets)

    async def _publish(self, event: CloudEvent) -> None:
        message = aio_pika.Message(
            event.structured(), content_type=STRUCTURED, message_id=event.id, type=event.attributes["type"],
            timestamp=datetime.fromisoformat(event.attributes["time"]), app_id="mainspring",
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        )  # fmt: skip
        await self._exchange.publish(message, self._routing_key, mandatory=True, timeout=_ANSWER)

    async def close(self) -> None:
        await self._connection.close()
