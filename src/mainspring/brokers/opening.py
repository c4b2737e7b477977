"""Opens the producer of a broker. Its module is imported when it is needed, because it imports a library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mainspring.brokers.addresses import BrokerAddress, require_library
from mainspring.brokers.reach import AllowedAddresses
from mainspring.domain.sinks.cloud_events import Producer


async def open_producer(
    address: BrokerAddress, settings: Mapping[str, Any], secrets: Mapping[str, str], reach: AllowedAddresses
) -> Producer:
    """Raises NotTaken, or MainspringError if an extra is missing."""
    require_library(address.kind)
    if address.kind == "nats":
        from mainspring.brokers.nats.producer import open_nats

        return await open_nats(address, settings, secrets, reach)
    if address.kind == "redis":
        from mainspring.brokers.redis.producer import open_redis

        return await open_redis(address, settings, secrets, reach)
    if address.kind == "rabbitmq":
        from mainspring.brokers.rabbitmq.producer import open_rabbitmq

        return await open_rabbitmq(address, settings, secrets, reach)
    from mainspring.brokers.kafka.producer import open_kafka

    return await open_kafka(address, settings, secrets, reach)
