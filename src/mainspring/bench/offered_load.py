"""Submissions for a bench of overload: as many as servers take, or a fixed number a second whether they keep up."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter, deque
from collections.abc import Sequence
from uuid import UUID

import httptools
import msgspec

from mainspring.kernel.http_client import HttpConnection, HttpServer
from mainspring.wire.jobs import JobCreated

BODY = b'{"task":"bench.noop","queue":"later","payload":{"text":"%b"}}' % (b"x" * 180)
CLIENTS = 32
_MOST_CONNECTIONS = 4000
_ANSWER_WITHIN = 10.0
_TURN = 0.005
_REFUSED_PAUSE = 0.1

_decode = msgspec.json.Decoder(JobCreated).decode


class Load:
    """`accepted` are the jobs that were acknowledged; `statuses` counts all answers, 0 for none in time. New
    connections go to the servers in turn."""

    def __init__(self, urls: Sequence[str], token: str) -> None:
        self.accepted: list[UUID] = []
        self.statuses: Counter[int] = Counter()
        servers = [HttpServer(url) for url in urls]
        self._turns = itertools.cycle([(server, server.post("/v1/jobs", token)) for server in servers])
        self._idle: deque[tuple[HttpConnection, bytes]] = deque()
        self._open = 0
        self._last_ones: list[asyncio.Task[int]] = []

    async def saturate(self, seconds: float) -> float:
        """Jobs a second that are accepted from clients that wait for each answer."""
        before, started = len(self.accepted), time.perf_counter()
        end = started + seconds

        async def client() -> None:
            while time.perf_counter() < end:
                if await self._submit() != 201:
                    await asyncio.sleep(_REFUSED_PAUSE)

        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        return (len(self.accepted) - before) / (time.perf_counter() - started)

    async def offer(self, per_second: float, seconds: float) -> float:
        """Send at this rate, whatever is answered; gives the rate that was reached."""
        started, sent = time.perf_counter(), 0
        under_way: set[asyncio.Task[int]] = set()
        while (passed := time.perf_counter() - started) < seconds:
            while sent < passed * per_second and self._open < _MOST_CONNECTIONS:
                task = asyncio.create_task(self._submit())
                under_way.add(task)
                task.add_done_callback(under_way.discard)
                sent += 1
            await asyncio.sleep(_TURN)
        rate = sent / (time.perf_counter() - started)
        self._last_ones = list(under_way)
        return rate

    async def settle(self) -> None:
        """Wait for the answers that are still to come."""
        await asyncio.gather(*self._last_ones)

    def close(self) -> None:
        for connection, _ in self._idle:
            connection.close()

    async def _submit(self) -> int:
        self._open += 1
        status = 0
        try:
            async with asyncio.timeout(_ANSWER_WITHIN):
                connection, head = await self._connection()
                try:
                    status, answer = await connection.ask(head, BODY)
                finally:
                    if connection.usable:
                        self._idle.append((connection, head))
                    else:
                        connection.close()
            if status == 201:
                self.accepted.append(UUID(_decode(answer).job_id))
        except (OSError, httptools.HttpParserError):  # TimeoutError is an OSError
            pass
        finally:
            self._open -= 1
            self.statuses[status] += 1
        return status

    async def _connection(self) -> tuple[HttpConnection, bytes]:
        while self._idle:
            connection, head = self._idle.popleft()
            if connection.usable:
                return connection, head
        server, head = next(self._turns)
        return await server.connect(), head
