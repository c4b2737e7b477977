"""Reads one source again and again: messages go to the server, and are settled at the broker when they are stored.

Nothing is kept here that a kill would lose. A broker or server that is away is tried again with growing pauses. No more
is read from the broker while the server does not take what was read.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Protocol

import msgspec

from mainspring.brokers.connect_settings import SourceSettings
from mainspring.brokers.consumers import BrokerMessage, Consumer, OffsetConsumer
from mainspring.brokers.messages import buried, converted
from mainspring.domain.errors import Conflict, Forbidden, InvalidInput, MainspringError, PayloadTooLarge, Unauthorized
from mainspring.kernel.lifecycle import backoff
from mainspring.kernel.logs import get_logger
from mainspring.wire.sources import LONGEST_PROBLEM, SourceMessage, SourceTake, SourceTaken

log = get_logger("connect")

_AT_ONCE = 500
_BYTES_AT_ONCE = 4 * 1024 * 1024
_LONGEST_ID = 300
_WAIT = 1.0
_SILENT_SECONDS = 30.0  # a broker that does not answer for so long is away
_REPORT_EVERY = 15.0
_LONGEST_PAUSE = 10.0

Take = Callable[[str, SourceTake], Awaitable[SourceTaken]]
Pause = Callable[[float], Awaitable[None]]


class TakingServer(Protocol):
    async def take(self, source: str, request: SourceTake) -> SourceTaken:
        """POST /v1/sources/{source}:take"""


class _Moved(Exception):
    """Another connector has taken messages of the partition."""


class Connector:
    """One source. `make`: a new consumer of its broker."""

    def __init__(
        self, source: SourceSettings, name: str, server: TakingServer, make: Callable[[], Consumer], pause: Pause
    ) -> None:
        self._source = source
        self._name = name
        self._server = server
        self._make = make
        self._pause = pause
        self._settled: list[str] = []
        self._positions: dict[str, int | None] = {}
        self._reported_at = 0.0

    async def run(self) -> None:
        """Until it is cancelled."""
        failures = 0
        while True:
            consumer = self._make()
            try:
                async with asyncio.timeout(_SILENT_SECONDS):
                    await consumer.open()
                log.info("source is open", source=self._source.name, url=self._source.shown_url)
                await self._report(consumer)
                while True:
                    await self.step(consumer)
                    failures = 0
            except Exception as error:  # noqa: BLE001 - libraries of brokers raise errors of all kinds
                failures += 1
                problem = self._source.without_password(f"{type(error).__name__}: {error}")[:LONGEST_PROBLEM]
                log.warning("source fails; trying again", source=self._source.name, problem=problem, failures=failures)
                with suppress(MainspringError):
                    await self._server.take(self._source.name, self._request("", problem=_one_line(problem)))
            finally:
                await consumer.close()
            await self._pause(backoff(failures, floor=0.2, cap=_LONGEST_PAUSE))

    async def step(self, consumer: Consumer) -> int:
        """Read what there is, let the server take it, and settle it. Returns how many messages there were."""
        if isinstance(consumer, OffsetConsumer):
            for partition in consumer.unplaced():
                await self._place(consumer, partition)
        messages = [_named(message) for message in await consumer.read(_AT_ONCE, _WAIT)]
        for partition, some in groupby(sorted(messages, key=_partition_of), key=_partition_of):
            try:
                for part in _parts(list(some)):
                    await self._take(partition, part)
                    async with asyncio.timeout(_SILENT_SECONDS):
                        self._settled += await consumer.settle(part)
            except _Moved:
                assert isinstance(consumer, OffsetConsumer)
                await self._place(consumer, partition)
        due = asyncio.get_running_loop().time() - self._reported_at >= _REPORT_EVERY
        if due or (self._settled and not messages):
            await self._report(consumer)
        return len(messages)

    async def _place(self, consumer: OffsetConsumer, partition: str) -> None:
        """Ask the server where the partition is, and read on from there."""
        stored = (await self._sent(self._request(partition))).offset
        first = await consumer.place(partition, stored)
        if first is None:
            return
        if stored is None:
            # From now on it begins there, whatever is killed before the first message.
            with suppress(Conflict):
                stored = (await self._sent(self._request(partition, offset=first))).offset
        self._positions[partition] = stored
        log.info("partition begins", source=self._source.name, partition=partition, offset=stored)

    async def _take(self, partition: str, messages: Sequence[BrokerMessage]) -> None:
        made = [
            converted(self._source, message)
            if len(message.value) <= _BYTES_AT_ONCE
            else buried(message, f"the value has more than {_BYTES_AT_ONCE} bytes")
            for message in messages
        ]
        await self._take_some(partition, made, messages)

    async def _take_some(
        self, partition: str, made: Sequence[SourceMessage], messages: Sequence[BrokerMessage]
    ) -> None:
        """Let the server take messages; in parts if it does not take them together."""
        request = self._request(partition, messages=list(made))
        try:
            taken = await self._sent(request)
        except (InvalidInput, PayloadTooLarge) as error:
            if len(made) > 1:
                half = len(made) // 2
                await self._take_some(partition, made[:half], messages[:half])
                await self._take_some(partition, made[half:], messages[half:])
            elif made[0].dead is None:
                await self._take_some(partition, [buried(messages[0], str(error))], messages)
            else:
                raise
            return
        except Conflict as error:
            if error.code != "source_moved":
                raise
            log.info("another connector reads the partition", source=self._source.name, partition=partition)
            raise _Moved from None
        self._settled = self._settled[len(request.settled) :]
        if made[-1].offset is not None:
            self._positions[partition] = made[-1].offset
        if taken.dead:
            log.warning("dead messages", source=self._source.name, partition=partition, messages=taken.dead)

    async def _sent(self, request: SourceTake) -> SourceTaken:
        """The answer of the server, however long it is away or refuses. Raises what a repeat would not change."""
        failures = 0
        while True:
            try:
                return await self._server.take(self._source.name, request)
            except (InvalidInput, PayloadTooLarge):
                raise
            except Conflict as error:
                if error.code == "source_moved":
                    raise
                failed: MainspringError = error
            except MainspringError as error:
                failed = error
            failures += 1
            least = 5.0 if isinstance(failed, Unauthorized | Forbidden) else getattr(failed, "retry_after", 0) or 0.2
            log.warning("the server does not take messages; trying again", source=self._source.name, error=str(failed))
            await self._pause(backoff(failures, floor=float(least), cap=max(float(least), _LONGEST_PAUSE)))

    async def _report(self, consumer: Consumer) -> None:
        """Tell the server that the source is read, and how many messages wait."""
        self._reported_at = asyncio.get_running_loop().time()
        async with asyncio.timeout(_SILENT_SECONDS):
            waiting = await consumer.lag()
        for partition in waiting or ([] if isinstance(consumer, OffsetConsumer) else [""]):
            request = self._request(partition)
            request.lag = waiting.get(partition)
            await self._sent(request)
            self._settled = self._settled[len(request.settled) :]

    def _request(
        self,
        partition: str,
        messages: list[SourceMessage] | None = None,
        offset: int | None = None,
        problem: str | None = None,
    ) -> SourceTake:
        moving = messages is not None and messages[-1].offset is not None
        return SourceTake(
            self._source.kind,
            self._name,
            partition,
            after=self._positions.get(partition) if moving else None,
            offset=offset,
            messages=messages or [],
            settled=self._settled[:1000],
            problem=problem,
        )


def _partition_of(message: BrokerMessage) -> str:
    return message.partition


def _parts(messages: Sequence[BrokerMessage]) -> list[list[BrokerMessage]]:
    """The messages in parts that one request may hold."""
    parts: list[list[BrokerMessage]] = [[]]
    size = 0
    for message in messages:
        size += len(message.value) + 500
        if parts[-1] and size > _BYTES_AT_ONCE:
            parts.append([])
            size = len(message.value)
        parts[-1].append(message)
    return parts


def _named(message: BrokerMessage) -> BrokerMessage:
    """With an id that the server takes."""
    if message.id is None or (0 < len(message.id) <= _LONGEST_ID and message.id.isprintable()):
        return message
    digest = hashlib.sha256(message.id.encode("utf-8", "replace")).hexdigest()
    return msgspec.structs.replace(message, id=digest if message.id else None)


def _one_line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())
