"""Reads a topic of Kafka as a member of a group. The server stores the offsets; Kafka gets them for its own tools."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from mainspring.brokers.connect_settings import SourceSettings
from mainspring.brokers.consumers import ANSWER_SECONDS, BrokerMessage, Consumer
from mainspring.kernel.logs import get_logger

log = get_logger("connect")


def make(settings: SourceSettings, connector: str) -> Consumer:
    return KafkaConsumer(settings, connector)


class KafkaConsumer:
    def __init__(self, settings: SourceSettings, connector: str) -> None:
        self._settings = settings
        self._name = connector
        self._consumer: Any = None
        self._unplaced: set[TopicPartition] = set()

    async def open(self) -> None:
        self._consumer = AIOKafkaConsumer(
            client_id=f"mainspring-{self._name}", group_id=self._settings.group, enable_auto_commit=False,
            auto_offset_reset="earliest", isolation_level="read_committed", metadata_max_age_ms=30_000,
            request_timeout_ms=int(ANSWER_SECONDS * 1000), **connection_settings(self._settings.url),
        )  # fmt: skip
        self._consumer.subscribe([self._settings.place], listener=_Assigned(self._consumer, self._unplaced))
        await self._consumer.start()

    def unplaced(self) -> list[str]:
        return [_name(partition) for partition in self._unplaced & set(self._consumer.assignment())]

    async def place(self, partition: str, offset: int | None) -> int | None:
        found = next((one for one in self._consumer.assignment() if _name(one) == partition), None)
        if found is None:  # it was given to another member meanwhile
            return None
        first: int = (await self._consumer.beginning_offsets([found]))[found]
        end: int = (await self._consumer.end_offsets([found]))[found]
        if offset is None:
            following = first if self._settings.start == "beginning" else end
        else:
            following = offset + 1
            if following > end:
                raise RuntimeError(
                    f"offset {offset} is stored, and {partition} ends before it: was the topic made again? Then run: "
                    f"mainspring source delete {self._settings.name}"
                )
            if following < first:
                log.warning(
                    "Kafka has deleted messages before they were read", source=self._settings.name,
                    partition=partition, messages=first - following,
                )  # fmt: skip
                following = first
        if found not in self._consumer.assignment():
            return None
        self._consumer.seek(found, following)
        self._consumer.resume(found)
        self._unplaced.discard(found)
        return int(following) - 1

    async def read(self, most: int, wait: float) -> list[BrokerMessage]:
        found = await self._consumer.getmany(timeout_ms=int(wait * 1000), max_records=most)
        placed = [some for partition, some in found.items() if partition not in self._unplaced]
        return [_message(record) for some in placed for record in some]

    async def settle(self, messages: Sequence[BrokerMessage]) -> list[str]:
        last = messages[-1]
        assert last.offset is not None
        with suppress(KafkaError):  # what counts is stored
            await self._consumer.commit({last.receipt: last.offset + 1})
        return []

    async def lag(self) -> dict[str, int]:
        assigned = [one for one in self._consumer.assignment() if one not in self._unplaced]
        if not assigned:
            return {}
        ends = await self._consumer.end_offsets(assigned)
        return {_name(one): max(0, ends[one] - await self._consumer.position(one)) for one in assigned}

    async def close(self) -> None:
        if self._consumer is not None:
            with suppress(KafkaError, OSError, asyncio.TimeoutError):
                await asyncio.wait_for(self._consumer.stop(), ANSWER_SECONDS)
            self._consumer = None


class _Assigned(ConsumerRebalanceListener):  # type: ignore[misc]
    """Partitions that are assigned are not read before the server has said where they are."""

    def __init__(self, consumer: Any, unplaced: set[TopicPartition]) -> None:
        self._consumer = consumer
        self._unplaced = unplaced

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._unplaced.difference_update(revoked)

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._unplaced.update(assigned)
        self._consumer.pause(*assigned)


def connection_settings(url: str) -> dict[str, Any]:
    """What aiokafka calls what is in kafka://user:password@host:9092,host:9092?mechanism=SCRAM-SHA-256."""
    parts = urlsplit(url)
    user, _, hosts = parts.netloc.rpartition("@")
    tls = parts.scheme == "kafkas"
    found: dict[str, Any] = {"bootstrap_servers": hosts.split(",")}
    if tls:
        found["ssl_context"] = ssl.create_default_context()
    if user:
        name, _, password = user.partition(":")
        found |= {
            "sasl_mechanism": parse_qs(parts.query).get("mechanism", ["PLAIN"])[0],
            "sasl_plain_username": unquote(name),
            "sasl_plain_password": unquote(password),
        }
    found["security_protocol"] = f"{'SASL_' if user else ''}{'SSL' if tls else 'PLAINTEXT'}"
    return found


def _message(record: ConsumerRecord) -> BrokerMessage:
    return BrokerMessage(
        record.value or b"",
        key=None if record.key is None else _key(record.key),
        headers={name: value.decode(errors="replace") for name, value in record.headers},
        topic=record.topic,
        partition=f"{record.topic}/{record.partition}",
        offset=record.offset,
        receipt=TopicPartition(record.topic, record.partition),
    )


def _key(key: bytes) -> str | None:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return None


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}/{partition.partition}"
