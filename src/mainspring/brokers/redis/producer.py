"""Appends to a Redis stream. A batch is one transaction: all of its events are there, in order, or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import redis.asyncio
from redis.exceptions import RedisError

from mainspring.brokers.addresses import BrokerAddress
from mainspring.brokers.reach import AllowedAddresses
from mainspring.brokers.windows import in_words
from mainspring.domain.sinks.cloud_events import CloudEvent, NotTaken

_CONNECT, _ANSWER = 5.0, 15.0  # seconds


async def open_redis(
    address: BrokerAddress, settings: Mapping[str, Any], secrets: Mapping[str, str], reach: AllowedAddresses
) -> RedisProducer:
    [(host, port)] = address.hosts
    checked = (await reach.addresses(address.scheme, host, port))[0]
    # TLS verifies the certificate of the name, so that the name cannot lead elsewhere.
    client = redis.asyncio.Redis(
        host=host if address.tls else checked, port=port, db=int(address.path or 0), username=settings.get("user"),
        password=secrets.get("password"), ssl=address.tls, socket_connect_timeout=_CONNECT, socket_timeout=_ANSWER,
        single_connection_client=True, client_name="mainspring",
    )  # fmt: skip
    return RedisProducer(client, str(settings["topic"]), secrets)


class RedisProducer:
    def __init__(self, client: redis.asyncio.Redis, stream: str, secrets: Mapping[str, str]) -> None:
        self._client = client
        self._stream = stream
        self._secrets = secrets

    async def send(self, events: Sequence[CloudEvent]) -> int:
        """Each entry has the field `event` with the structured event, and its id and type beside it."""
        try:
            async with self._client.pipeline(transaction=True) as pipeline:
                for event in events:
                    fields: dict[Any, Any] = {
                        "id": event.id, "type": event.attributes["type"], "event": event.structured(),
                    }  # fmt: skip
                    pipeline.xadd(self._stream, fields)
                await pipeline.execute()
        except (RedisError, OSError, TimeoutError) as error:
            raise NotTaken(in_words(error, self._secrets)) from None
        return len(events)

    async def close(self) -> None:
        await self._client.aclose()
