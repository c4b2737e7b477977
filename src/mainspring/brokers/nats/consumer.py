"""Reads a stream of NATS JetStream with a durable pull consumer, which delivers a message until it is acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import nats
from nats.errors import Error as NatsError
from nats.errors import NoServersError
from nats.errors import TimeoutError as NatsTimeout
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from mainspring.brokers.connect_settings import SourceSettings
from mainspring.brokers.consumers import ANSWER_SECONDS, OPEN_SECONDS, BrokerMessage, Consumer

_ACK_WAIT = 30.0  # seconds after which a message that is not acknowledged is delivered again
_AT_ONCE = 100  # acknowledgements under way


def make(settings: SourceSettings, connector: str) -> Consumer:
    return NatsConsumer(settings, connector)


class NatsConsumer:
    def __init__(self, settings: SourceSettings, connector: str) -> None:
        self._settings = settings
        self._name = connector
        self._connection: Any = None
        self._subscription: Any = None
        self._begun = ""
        self._last_error: Exception | None = None

    async def open(self) -> None:
        try:
            await self._connect()
        except NoServersError as error:
            raise self._last_error or error from None
        stream = self._connection.jetstream(timeout=ANSWER_SECONDS)
        info = await stream.stream_info(self._settings.place)
        # A stream that was deleted and made again counts from 1 again.
        self._begun = f"{info.created.timestamp():.6f}" if info.created is not None else ""
        config = ConsumerConfig(
            ack_policy=AckPolicy.EXPLICIT, ack_wait=_ACK_WAIT,
            deliver_policy=DeliverPolicy.ALL if self._settings.start == "beginning" else DeliverPolicy.NEW,
        )  # fmt: skip
        self._subscription = await stream.pull_subscribe(
            self._settings.subject or "", durable=self._settings.group, stream=self._settings.place, config=config
        )

    async def _connect(self) -> None:
        self._connection = await nats.connect(
            self._settings.url, name=f"mainspring {self._name}", connect_timeout=int(OPEN_SECONDS),
            allow_reconnect=False, max_reconnect_attempts=1, reconnect_time_wait=0, error_cb=self._note,
        )  # fmt: skip

    async def _note(self, error: Exception) -> None:
        """The calls raise their errors themselves, but for the one that lets no server be used."""
        self._last_error = error

    async def read(self, most: int, wait: float) -> list[BrokerMessage]:
        try:
            found = await self._subscription.fetch(most, timeout=wait)
        except (NatsTimeout, TimeoutError):
            if not self._connection.is_connected:
                raise ConnectionError("the connection to NATS is closed") from None
            return []
        return [self._message(one) for one in found]

    async def settle(self, messages: Sequence[BrokerMessage]) -> list[str]:
        for start in range(0, len(messages), _AT_ONCE):
            part = messages[start : start + _AT_ONCE]
            await asyncio.gather(*(message.receipt.ack_sync(timeout=ANSWER_SECONDS) for message in part))
        return [message.id for message in messages if message.id is not None]

    async def lag(self) -> dict[str, int]:
        info = await self._subscription.consumer_info()
        return {"": (info.num_pending or 0) + (info.num_ack_pending or 0)}

    async def close(self) -> None:
        if self._connection is not None:
            with suppress(NatsError, OSError, asyncio.TimeoutError):
                await asyncio.wait_for(self._connection.close(), ANSWER_SECONDS)
            self._connection = None

    def _message(self, one: Any) -> BrokerMessage:
        number = one.metadata.sequence.stream
        return BrokerMessage(
            one.data, f"{self._begun}:{number}", headers=dict(one.headers or {}), topic=one.subject, receipt=one
        )
