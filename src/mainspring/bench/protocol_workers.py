"""Workers that speak the exchange and run nothing: they hold the runs that they are given, and beat.

A process of its own (`python -m mainspring.bench.protocol_workers`), so that nothing else of the bench makes them late.
It reads its orders from stdin as JSON, prints a line when all workers are registered, and ends when stdin is closed;
then it prints how the workers fared.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from uuid import UUID

import httptools
import msgspec
import uvloop

from mainspring.bench.worker_processes import REGISTERED
from mainspring.kernel.config import DEFAULT_TIMING
from mainspring.kernel.garbage_collection import freeze_garbage_collection
from mainspring.kernel.http_client import HttpConnection, HttpServer
from mainspring.kernel.ids import uuid7
from mainspring.wire.exchange import ExchangeReply, ExchangeRequest, Held, WorkerHello
from mainspring.wire.protocol import SECRET_HEADER
from mainspring.worker.incarnation import new_secret

TASK, QUEUE = "bench.held", "overload"
_ANSWER_WITHIN = 4.0
_TRY_AGAIN = 0.1
_WAIT_MS = int(DEFAULT_TIMING.beat * 1000) - 100

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ExchangeReply).decode


class Orders(msgspec.Struct):
    url: str
    token: str
    workers: int
    slots: int


class Report(msgspec.Struct):
    """lost: workers that a server declared lost; longest_silence_s: between two acknowledgements of one worker."""

    lost: int
    held: int
    longest_silence_s: float


class ProtocolWorker:
    def __init__(self, server: HttpServer, token: str, slots: int) -> None:
        self.lost = False
        self.longest_silence = 0.0
        self.held: dict[UUID, int] = {}
        self._server = server
        self._head = server.post("/v1/exchange", token, {SECRET_HEADER: new_secret()})
        self._slots = slots
        self._worker_id = uuid7()
        self._seq = 0
        self._missed_answer = False
        self._known = False
        self._connection: HttpConnection | None = None
        self._heard = 0.0

    async def register(self) -> None:
        while not self._known and not self.lost:
            await self._exchange(wait_ms=0)

    async def beat_forever(self) -> None:
        while not self.lost:
            await self._exchange(wait_ms=_WAIT_MS)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    async def _exchange(self, wait_ms: int) -> None:
        status, body = await self._ask(_encode(self._request(wait_ms)))
        now = time.monotonic()
        if status == 200:
            if self._known:
                self.longest_silence = max(self.longest_silence, now - self._heard)
            reply = _decode(body)
            # A superseded exchange took no runs, and did not hand out again what an answer before it had carried.
            self._heard, self._known, self._missed_answer = now, True, self._missed_answer and reply.superseded
            self.held |= {order.run_id: order.fence for order in reply.runs}
        elif status == 409 and b"stale_exchange" not in body:
            self.lost = True
        else:
            self._missed_answer = True
            await asyncio.sleep(_TRY_AGAIN)

    def _request(self, wait_ms: int) -> ExchangeRequest:
        self._seq += 1
        request = ExchangeRequest(self._worker_id, self._seq, free=self._slots - len(self.held), wait_ms=wait_ms)
        if not self._known:
            request.hello = WorkerHello("bench", [QUEUE], [TASK], self._slots, lease=DEFAULT_TIMING.rescue)
        elif self._missed_answer:
            request.recover = True
            request.inventory = [Held(run_id, fence) for run_id, fence in self.held.items()]
        return request

    async def _ask(self, body: bytes) -> tuple[int, bytes]:
        """Status and answer; 0 when there was none."""
        try:
            async with asyncio.timeout(_ANSWER_WITHIN):
                if self._connection is None or not self._connection.usable:
                    self.close()
                    self._connection = await self._server.connect()
                return await self._connection.ask(self._head, body)
        except (OSError, httptools.HttpParserError):  # TimeoutError is an OSError
            self.close()
            return 0, b""


async def run(orders: Orders, *, registered: asyncio.Event, end: asyncio.Event) -> Report:
    server = HttpServer(orders.url)
    workers = [ProtocolWorker(server, orders.token, orders.slots) for _ in range(orders.workers)]
    for start in range(0, len(workers), 50):
        await asyncio.gather(*(worker.register() for worker in workers[start : start + 50]))
    beating = [asyncio.create_task(worker.beat_forever()) for worker in workers]
    registered.set()
    await end.wait()
    for task in beating:
        task.cancel()
    await asyncio.wait(beating)
    for worker in workers:
        worker.close()
    return Report(
        lost=sum(worker.lost for worker in workers),
        held=sum(len(worker.held) for worker in workers),
        longest_silence_s=max(worker.longest_silence for worker in workers),
    )


async def _main() -> None:
    orders = msgspec.json.decode(sys.stdin.buffer.readline(), type=Orders)
    registered, end = asyncio.Event(), asyncio.Event()
    freeze_garbage_collection()
    running = asyncio.create_task(run(orders, registered=registered, end=end))
    await registered.wait()
    sys.stdout.write(REGISTERED.decode())
    sys.stdout.flush()
    with contextlib.suppress(OSError):
        await asyncio.to_thread(sys.stdin.buffer.read)
    end.set()
    sys.stdout.write(_encode(await running).decode() + "\n")


if __name__ == "__main__":
    uvloop.run(_main())
