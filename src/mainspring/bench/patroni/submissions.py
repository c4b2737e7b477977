"""Clients that submit jobs at a steady rate, each once: without a key and without a second try."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import suppress
from itertools import count, pairwise

import httptools
import msgspec

from mainspring.kernel.http_client import HttpConnection, HttpServer
from mainspring.wire.jobs import JobCreated

_CREATED = 201
_PATIENCE = 90.0  # ends a client that hangs
_BODY = b'{"task":"bench.noop"}'
_decode = msgspec.json.Decoder(JobCreated).decode


class Submissions:
    """`acknowledged`: job id and time of each answer 201. `refused`: how many answers of each other status; 0 stands
    for none, which says nothing about the job."""

    def __init__(self, urls: list[str], token: str, per_second: float) -> None:
        self._servers = [HttpServer(url) for url in urls]
        self._heads = [server.post("/v1/jobs", token) for server in self._servers]
        self._idle: list[list[HttpConnection]] = [[] for _ in urls]
        self._per_second = per_second
        self._sending: set[asyncio.Task[None]] = set()
        self._steady: asyncio.Task[None] | None = None
        self.acknowledged: list[tuple[str, float]] = []
        self.refused: Counter[int] = Counter()
        self.slowest = 0.0

    def start(self) -> None:
        self._steady = asyncio.create_task(self._submit_steadily())

    async def stop(self) -> None:
        """Send no more, and wait for all answers."""
        if self._steady is not None:
            self._steady.cancel()
            await asyncio.wait([self._steady])
        if self._sending:
            await asyncio.gather(*self._sending)

    def close(self) -> None:
        for idle in self._idle:
            for connection in idle:
                connection.close()

    def longest_gap(self, since: float, until: float) -> tuple[float, float]:
        """Within these times, the longest time without an acknowledged submission, and when it ended."""
        moments = [since, *sorted(at for _, at in self.acknowledged if since < at < until), until]
        return max((after - before, after) for before, after in pairwise(moments))

    def first_after(self, moment: float) -> float | None:
        return min((at for _, at in self.acknowledged if at > moment), default=None)

    async def _submit_steadily(self) -> None:
        start = time.monotonic()
        for number in count():
            await asyncio.sleep(start + number / self._per_second - time.monotonic())
            task = asyncio.create_task(self._submit(number % len(self._servers)))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _submit(self, server: int) -> None:
        began = time.monotonic()
        status, answer = await self._ask(server)
        now = time.monotonic()
        self.slowest = max(self.slowest, now - began)
        if status == _CREATED:
            self.acknowledged.append((_decode(answer).job_id, now))
        else:
            self.refused[status] += 1

    async def _ask(self, server: int) -> tuple[int, bytes]:
        with suppress(OSError, httptools.HttpParserError):  # TimeoutError is an OSError
            async with asyncio.timeout(_PATIENCE):
                connection = await self._connection(server)
                try:
                    return await connection.ask(self._heads[server], _BODY)
                finally:
                    if connection.usable:
                        self._idle[server].append(connection)
                    else:
                        connection.close()
        return 0, b""

    async def _connection(self, server: int) -> HttpConnection:
        idle = self._idle[server]
        while idle:
            connection = idle.pop()
            if connection.usable:
                return connection
        return await self._servers[server].connect()
