"""The connect process: reads sources from brokers, and lets a server take their messages."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from mainspring.brokers.connect_settings import SourceSettings
from mainspring.brokers.connector import Connector
from mainspring.brokers.consumers import consumer_of
from mainspring.kernel.logs import configure_logs, get_logger
from mainspring.kernel.parent_death import kill_after_supervisor
from mainspring.roles.stop_signals import StopSignals
from mainspring.sdk.client import calls
from mainspring.sdk.client.async_client import AsyncClient
from mainspring.wire.sources import SourceTake, SourceTaken

log = get_logger("connect")

_PATIENCE = 5.0  # then the connector says that the server is away, and goes on trying
_ORPHANED_SECONDS = 5.0
_LIBRARIES = ("aio_pika", "aiokafka", "aiormq", "nats")


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    server: str
    token: str = field(repr=False)
    sources: Sequence[SourceSettings] = ()
    name: str | None = None
    log_level: str = "info"
    log_format: str = "auto"


async def run_connect(options: ConnectOptions) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code. Whatever is under way is given up: nothing is lost by it."""
    configure_logs(role="connect", log_format=options.log_format, level=options.log_level)
    kill_after_supervisor(_ORPHANED_SECONDS)
    for library in _LIBRARIES:
        logging.getLogger(library).setLevel(logging.CRITICAL)  # the connectors log what they raise
    stop = StopSignals()
    name = options.name or socket.gethostname()
    client = AsyncClient(options.server, options.token, patience=_PATIENCE)
    server = _HttpServer(client)
    connectors = [
        Connector(source, name, server, partial(consumer_of, source, name), asyncio.sleep) for source in options.sources
    ]
    log.info("connecting", sources=[source.name for source in options.sources], server=options.server)
    tasks = [asyncio.create_task(connector.run()) for connector in connectors]
    try:
        await stop.asked.wait()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await client.close()
    log.info("stopped")
    return 0


class _HttpServer:
    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def take(self, source: str, request: SourceTake) -> SourceTaken:
        return await self._client.send(calls.take_messages(source, request))
