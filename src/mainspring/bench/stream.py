"""A steady stream of jobs. The client repeats each request with its idempotency key until a server accepts it."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from itertools import count
from uuid import UUID

import asyncpg
import httptools
import msgspec

from mainspring.bench.recorded import until_ended
from mainspring.kernel.http_client import HttpConnection, HttpServer
from mainspring.kernel.ids import uuid7
from mainspring.wire.jobs import JobCreated

PER_SECOND = 50
_ANSWER_WITHIN = 3.0
_OVERLOADED = 429
_TRY_AGAIN = 0.05

_decode = msgspec.json.Decoder(JobCreated).decode


class JobTiming(msgspec.Struct):
    """One job of the stream: the planned time of its submission, and the end of its run (seconds since the epoch)."""

    wanted: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.wanted


class BenchStream:
    def __init__(self, url: str, token: str) -> None:
        self._server = HttpServer(url)
        self._head = self._server.post("/v1/jobs", token)
        self._name = uuid7()
        self._idle: list[HttpConnection] = []
        self._wanted: dict[UUID, float] = {}
        self._sending: list[asyncio.Task[None]] = []
        self._submitting: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._submitting = asyncio.create_task(self._submit_steadily())

    async def stop(self) -> None:
        """Stop submitting, and wait until all pending jobs are accepted."""
        if self._submitting is not None:
            self._submitting.cancel()
            await asyncio.wait([self._submitting])
        await asyncio.gather(*self._sending)
        for connection in self._idle:
            connection.close()

    async def timings(self, connection: asyncpg.Connection) -> list[JobTiming]:
        """Wait until every accepted job has ended. Each must have exactly one run, with success."""
        ended = await until_ended(connection, list(self._wanted))
        return [JobTiming(wanted, ended[run_id].timestamp()) for run_id, wanted in self._wanted.items()]

    async def _submit_steadily(self) -> None:
        start = time.time()
        for number in count(1):
            wanted = start + number / PER_SECOND
            await asyncio.sleep(wanted - time.time())
            self._sending.append(asyncio.create_task(self._send(number, wanted)))

    async def _send(self, number: int, wanted: float) -> None:
        body = b'{"task":"bench.noop","idempotency_key":"%b-%d"}' % (str(self._name).encode(), number)
        while True:
            status, answer = await self._ask(body)
            if status in (200, 201):
                self._wanted[UUID(_decode(answer).job_id)] = wanted
                return
            if 400 <= status < 500 and status != _OVERLOADED:  # nothing was stored, and it is sent again
                raise AssertionError(f"a job of the stream was refused with {status}: {answer[:200]!r}")
            await asyncio.sleep(_TRY_AGAIN)

    async def _ask(self, body: bytes) -> tuple[int, bytes]:
        """Status and body of the response. The status is 0 if there was none."""
        with suppress(OSError, httptools.HttpParserError):  # TimeoutError is an OSError
            async with asyncio.timeout(_ANSWER_WITHIN):
                connection = await self._connection()
                try:
                    return await connection.ask(self._head, body)
                finally:
                    if connection.usable:
                        self._idle.append(connection)
                    else:
                        connection.close()
        return 0, b""

    async def _connection(self) -> HttpConnection:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        return await self._server.connect()
