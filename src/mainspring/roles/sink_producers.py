"""Opens what sends changes over the network: webhooks with the transport of notifications, and brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar

from mainspring.brokers.addresses import SCHEMES, broker_address, require_library
from mainspring.brokers.opening import open_producer
from mainspring.domain.errors import MainspringError
from mainspring.domain.notify.deliveries import HttpDelivery, signature
from mainspring.domain.sinks.cloud_events import BATCHED, STRUCTURED, CloudEvent, NotTaken, Producer, batch_of
from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock
from mainspring.kinds.http.address_guard import AddressGuard, AddressRefused
from mainspring.kinds.http.connection import Origin, TransportError
from mainspring.kinds.http.network import HttpConnections
from mainspring.operations.notify.transport import NotSent, Transport

_SECONDS = 20.0
_ENOUGH = 2.0  # seconds after which the position moves, so that little is sent again after a crash
T = TypeVar("T")


class NetworkProducers:
    """`guard`: the addresses that it may call."""

    def __init__(self, guard: AddressGuard, transport: Transport, clock: LoopClock = SYSTEM_CLOCK) -> None:
        self._transport = transport
        self._clock = clock
        self._reach = GuardedReach(guard, clock)

    def check(self, kind: str, settings: Mapping[str, Any]) -> None:
        if kind in SCHEMES:
            broker_address(kind, str(settings["url"]))
            require_library(kind)

    async def open(self, kind: str, settings: Mapping[str, Any], secrets: Mapping[str, str]) -> Producer:
        if kind == "webhook":
            return _Webhook(settings, secrets, self._transport, self._clock)
        opening = open_producer(broker_address(kind, str(settings["url"])), settings, secrets, self._reach)
        return _Timed(await _in_time(opening, self._clock, "no connection"), self._clock)


class GuardedReach:
    """Resolves names as the transport of notifications does: every address is checked."""

    def __init__(self, guard: AddressGuard, clock: LoopClock) -> None:
        self._connections = HttpConnections(guard, clock=clock)

    async def addresses(self, scheme: str, host: str, port: int) -> list[str]:
        try:
            return await self._connections.addresses(Origin(scheme, host, port))
        except AddressRefused as refusal:
            raise NotTaken(str(refusal)) from None
        except TransportError as error:
            raise NotTaken(str(error)) from None


async def _in_time(work: Awaitable[T], clock: LoopClock, late: str) -> T:
    try:
        async with clock.timeout(_SECONDS):
            return await work
    except TimeoutError:
        raise NotTaken(f"{late} within {_SECONDS:g} s") from None
    except MainspringError as error:
        raise NotTaken(f"{error}{'; ' + error.hint if error.hint else ''}") from None


class _Timed:
    """A producer that does not hang."""

    def __init__(self, producer: Producer, clock: LoopClock) -> None:
        self._producer = producer
        self._clock = clock

    async def send(self, events: Sequence[CloudEvent]) -> int:
        return await _in_time(self._producer.send(events), self._clock, "the broker did not take it")

    async def close(self) -> None:
        try:
            async with self._clock.timeout(2.0):
                await self._producer.close()
        except Exception:  # noqa: BLE001, S110 - the connection is of no use any more, whatever its library says
            pass


class _Webhook:
    """One POST for each event in structured mode, or for up to `batch` of them in batched mode, signed as Standard
    Webhooks has it."""

    def __init__(
        self, settings: Mapping[str, Any], secrets: Mapping[str, str], transport: Transport, clock: LoopClock
    ) -> None:
        self._url = str(settings["url"])
        self._batch: int | None = settings.get("batch")
        self._secret = secrets["secret"]
        self._transport = transport
        self._clock = clock

    async def send(self, events: Sequence[CloudEvent]) -> int:
        size, began = self._batch or 1, self._clock.monotonic()
        for start in range(0, len(events), size):
            if self._clock.monotonic() - began > _ENOUGH:
                return start
            try:
                await self._transport.deliver(self._delivery(events[start : start + size]))
            except NotSent as error:
                raise NotTaken(str(error), start) from None
        return len(events)

    def _delivery(self, events: Sequence[CloudEvent]) -> HttpDelivery:
        body = events[0].structured() if self._batch is None else batch_of(events)
        timestamp = int(self._clock.wall().timestamp())
        headers = {
            "Content-Type": f"{STRUCTURED if self._batch is None else BATCHED}; charset=utf-8",
            "webhook-id": events[0].id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": signature(self._secret, events[0].id, timestamp, body),
        }
        return HttpDelivery(self._url, body, headers)

    async def close(self) -> None: ...
