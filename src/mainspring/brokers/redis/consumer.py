"""Reads a Redis stream as a member of a consumer group. An entry stays pending until it is acknowledged."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from mainspring.brokers.connect_settings import SourceSettings
from mainspring.brokers.consumers import ANSWER_SECONDS, OPEN_SECONDS, BrokerMessage, Consumer

_ABANDONED_MS = 60_000  # after this time entries of other members are taken over
_CLAIM_EVERY = 20.0


def make(settings: SourceSettings, connector: str) -> Consumer:
    return RedisConsumer(settings, connector)


class RedisConsumer:
    def __init__(self, settings: SourceSettings, connector: str) -> None:
        self._settings = settings
        self._name = connector
        self._redis: Redis | None = None
        self._own_after: str | None = "0"  # entries that this member was given before; None: all are read
        self._claimed_at = -_CLAIM_EVERY
        self._claim_from = "0-0"

    @property
    def _open(self) -> Redis:
        assert self._redis is not None
        return self._redis

    async def open(self) -> None:
        self._redis = Redis.from_url(
            self._settings.url, socket_connect_timeout=OPEN_SECONDS, socket_timeout=ANSWER_SECONDS,
            client_name=f"mainspring {self._name}"[:60].replace(" ", "-"),
        )  # fmt: skip
        begin = "0" if self._settings.start == "beginning" else "$"
        try:
            await self._redis.xgroup_create(self._settings.place, self._settings.group, id=begin, mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise
        self._own_after = "0"

    async def read(self, most: int, wait: float) -> list[BrokerMessage]:
        if self._own_after is not None:
            entries = await self._next_of_group(self._own_after, most)
            if entries:
                self._own_after = _text(entries[-1][0])
                return await self._messages(entries)
            self._own_after = None
        if time.monotonic() - self._claimed_at >= _CLAIM_EVERY and (entries := await self._claim(most)):
            return await self._messages(entries)
        return await self._messages(await self._next_of_group(">", most, wait))

    async def settle(self, messages: Sequence[BrokerMessage]) -> list[str]:
        ids = [message.id for message in messages if message.id is not None]
        await self._open.xack(self._settings.place, self._settings.group, *ids)
        return ids

    async def lag(self) -> dict[str, int]:
        for group in await self._open.xinfo_groups(self._settings.place):
            if _text(group["name"]) == self._settings.group and group.get("lag") is not None:
                return {"": int(group["lag"]) + int(group["pending"])}
        return {}

    async def close(self) -> None:
        if self._redis is not None:
            with suppress(RedisError, OSError):
                await self._redis.aclose()
            self._redis = None

    async def _next_of_group(self, after: str, most: int, wait: float | None = None) -> list[Any]:
        block = None if wait is None else max(1, int(wait * 1000))
        found = await self._open.xreadgroup(
            self._settings.group, self._name, {self._settings.place: after}, count=most, block=block
        )
        if not found:
            return []
        [streams] = found.values() if isinstance(found, dict) else [found[0][1]]
        # RESP3 has one more list around the entries.
        return list(streams[0] if streams and isinstance(streams[0], list) else streams)

    async def _claim(self, most: int) -> list[Any]:
        """Entries that another member was given and has not acknowledged for a minute."""
        found = await self._open.xautoclaim(
            self._settings.place, self._settings.group, self._name, _ABANDONED_MS, self._claim_from, count=most
        )
        self._claim_from = _text(found[0])
        if self._claim_from == "0-0":
            self._claimed_at = time.monotonic()
        return list(found[1])

    async def _messages(self, entries: Sequence[Any]) -> list[BrokerMessage]:
        gone = [entry_id for entry_id, fields in entries if not fields]  # deleted or trimmed before they were read
        if gone:
            await self._open.xack(self._settings.place, self._settings.group, *gone)
        return [self._message(_text(entry_id), fields) for entry_id, fields in entries if fields]

    def _message(self, entry_id: str, fields: Mapping[bytes, bytes]) -> BrokerMessage:
        field = self._settings.field
        if field is None and len(fields) == 1:
            field = _text(next(iter(fields)))
        texts = {_text(name): value for name, value in fields.items()}
        headers = {name: _text(value) for name, value in texts.items() if name != field}
        value = texts.get(field, b"") if field is not None else msgspec.json.encode(headers)
        return BrokerMessage(value, entry_id, headers=headers, topic=self._settings.place)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
