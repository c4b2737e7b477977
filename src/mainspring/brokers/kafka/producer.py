"""Sends to a Kafka topic with an idempotent producer. The key is the job, so its events share a partition, in order."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from mainspring.brokers.addresses import BrokerAddress
from mainspring.brokers.reach import AllowedAddresses
from mainspring.brokers.windows import in_words
from mainspring.domain.sinks.cloud_events import CloudEvent, NotTaken

_ANSWER_MS = 15_000
_NOT_EXTENSIONS = "datacontenttype"


async def open_kafka(
    address: BrokerAddress, settings: Mapping[str, Any], secrets: Mapping[str, str], reach: AllowedAddresses
) -> KafkaProducer:
    for host, port in address.hosts:
        await reach.addresses(address.scheme, host, port)
    user = settings.get("user")
    protocol = ("SASL_" if user else "") + ("SSL" if address.tls else "PLAINTEXT")
    producer = AIOKafkaProducer(
        bootstrap_servers=[f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in address.hosts],
        client_id="mainspring", acks="all", enable_idempotence=True, request_timeout_ms=_ANSWER_MS,
        security_protocol=protocol, ssl_context=ssl.create_default_context() if address.tls else None,
        sasl_mechanism="PLAIN" if address.tls else "SCRAM-SHA-256", sasl_plain_username=user,
        sasl_plain_password=secrets.get("password"),
    )  # fmt: skip
    try:
        await producer.start()
    except (KafkaError, OSError, TimeoutError) as error:
        await producer.stop()
        raise NotTaken(f"no connection to Kafka: {in_words(error, secrets)}") from None
    return KafkaProducer(producer, str(settings["topic"]), address.scheme, secrets, reach)


class KafkaProducer:
    def __init__(
        self, producer: AIOKafkaProducer, topic: str, scheme: str, secrets: Mapping[str, str], reach: AllowedAddresses
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._scheme = scheme
        self._secrets = secrets
        self._reach = reach

    async def send(self, events: Sequence[CloudEvent]) -> int:
        """In binary mode: attributes are headers `ce_...`, and the value is the data."""
        try:
            for broker in self._producer.client.cluster.brokers():  # the cluster says where its brokers are
                await self._reach.addresses(self._scheme, broker.host, broker.port)
            sent = [
                await self._producer.send(self._topic, event.data, key=event.key.encode(), headers=_headers(event))
                for event in events
            ]
            results = await asyncio.gather(*sent, return_exceptions=True)
        except (KafkaError, OSError, TimeoutError) as error:
            raise NotTaken(in_words(error, self._secrets)) from None
        for index, result in enumerate(results):
            if isinstance(result, BaseException):
                raise NotTaken(in_words(result, self._secrets), index)
        return len(events)

    async def close(self) -> None:
        await self._producer.stop()


def _headers(event: CloudEvent) -> list[tuple[str, bytes]]:
    """As the Kafka binding of CloudEvents has them."""
    found = [(f"ce_{name}", value.encode()) for name, value in event.attributes.items() if name != _NOT_EXTENSIONS]
    return [("content-type", event.attributes[_NOT_EXTENSIONS].encode()), *found]
