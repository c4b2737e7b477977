"""Publishes to NATS JetStream. An event is taken when the stream that has the subject has acknowledged it."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from typing import Any

import nats.errors
from nats.aio.client import Client

from mainspring.brokers.addresses import BrokerAddress
from mainspring.brokers.reach import AllowedAddresses
from mainspring.brokers.windows import in_words, send_windows
from mainspring.domain.sinks.cloud_events import STRUCTURED, CloudEvent, NotTaken

_CONNECT, _ANSWER = 5, 10.0  # seconds


async def open_nats(
    address: BrokerAddress, settings: Mapping[str, Any], secrets: Mapping[str, str], reach: AllowedAddresses
) -> NatsProducer:
    [(host, port)] = address.hosts
    checked = (await reach.addresses(address.scheme, host, port))[0]
    client, said = Client(), list[Exception]()

    async def note(error: Exception) -> None:
        said.append(error)

    tls: dict[str, Any] = {"tls": ssl.create_default_context(), "tls_hostname": host} if address.tls else {}
    try:
        # Without reconnects it does not follow the server to addresses that were not checked.
        await client.connect(
            f"{address.scheme}://{f'[{checked}]' if ':' in checked else checked}:{port}",
            name="mainspring", allow_reconnect=False, connect_timeout=_CONNECT, user=settings.get("user"),
            password=secrets.get("password"), token=secrets.get("token"), error_cb=note, max_reconnect_attempts=1,
            reconnect_time_wait=0, **tls,
        )  # fmt: skip
    except (OSError, nats.errors.Error, TimeoutError) as error:
        why = in_words(said[-1] if said else error, secrets)
        raise NotTaken(f"no connection to {host} port {port}: {why}") from None
    said.clear()
    return NatsProducer(client, str(settings["topic"]), secrets)


class NatsProducer:
    def __init__(self, client: Client, subject: str, secrets: Mapping[str, str]) -> None:
        self._client = client
        self._stream = client.jetstream(timeout=_ANSWER)
        self._subject = subject
        self._secrets = secrets

    async def send(self, events: Sequence[CloudEvent]) -> int:
        return await send_windows(events, self._publish, self._secrets)

    async def _publish(self, event: CloudEvent) -> None:
        # The stream drops what it has got with this id in the last two minutes, or as long as it is told to look back.
        headers = {"Content-Type": STRUCTURED, "Nats-Msg-Id": f"{event.id}-{self._subject}"}
        await self._stream.publish(self._subject, event.structured(), headers=headers)

    async def close(self) -> None:
        await self._client.close()
