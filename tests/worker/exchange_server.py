"""The other end of the network for a worker under test: a small HTTP server that speaks the exchange.

It keeps the promises of the real one as the wire module states them: an outcome is recorded once and acknowledged
always, a newer exchange releases a parked one, lost claims are handed out again on recover. Faults are put in front of
the next exchanges: each is used once. An outage is a fault of every exchange until it is over, of parked ones too.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

from mainspring.kernel.ids import uuid7
from mainspring.wire.exchange import ExchangeReply, ExchangeRequest, Outcome, RunOrder
from mainspring.wire.problems import Problem

Fault = Literal[
    "drop the answer",
    "cut the answer short",
    "talk nonsense",
    "hang",
    "503",
    "store_down",
    "401",
    "422",
    "unknown_worker",
    "fenced",
    "conflict",
]
_PROBLEMS = {
    "503": (503, "unavailable"),
    "store_down": (503, "store_down"),
    "401": (401, "unauthorized"),
    "422": (422, "invalid_input"),
    "unknown_worker": (409, "unknown_worker"),
    "fenced": (409, "fenced"),
    "conflict": (409, "conflict"),
}

_decode = msgspec.json.Decoder(ExchangeRequest).decode
_encode = msgspec.json.Encoder().encode
_FIRE_TIME = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)


def an_order(task: str = "noop", *, run_id: UUID | None = None, fence: int = 1, **fields: Any) -> RunOrder:
    payload = fields.pop("payload", None)
    return RunOrder(
        run_id=run_id or uuid7(),
        fence=fence,
        task=task,
        attempt=fields.pop("attempt", 1),
        job_id=fields.pop("job_id", "a-job"),
        scheduled_for=_FIRE_TIME,
        payload=msgspec.Raw(b"null" if payload is None else msgspec.json.encode(payload)),
        **fields,
    )


class ExchangeServer:
    def __init__(self) -> None:
        self.requests: list[ExchangeRequest] = []
        self.arrivals: list[float] = []  # when each of them came (monotonic)
        self.outcomes: dict[UUID, Outcome] = {}
        self.recorded_twice: list[UUID] = []
        self.stop: set[UUID] = set()
        self.recall = 0  # asked for once
        self.drain = False
        self.faults: deque[Fault] = deque()
        self.ready = True  # what /readyz says
        self.asked_if_ready = 0
        self.acknowledged = 0.0  # when the last exchange arrived that was answered 200 (monotonic)
        self._outage: Fault | None = None
        self.most_in_flight = 0
        self.connected = 0
        self._faults_when_reported: dict[UUID, Fault] = {}
        self._ready: deque[RunOrder] = deque()
        self._claimed: dict[UUID, RunOrder] = {}
        self._changed = asyncio.Event()
        self._newest: dict[UUID, int] = {}
        self._in_flight = 0
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @property
    def incarnations(self) -> list[UUID]:
        return list(dict.fromkeys(request.worker_id for request in self.requests))

    async def __aenter__(self) -> ExchangeServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=2**24)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._connections):
            writer.close()

    async def hang_up(self) -> None:
        """Close all connections, as a server does with those that are idle."""
        for writer in list(self._connections):
            writer.close()
            await writer.wait_closed()

    def submit(self, *orders: RunOrder) -> None:
        self._ready.extend(orders)
        self._tell()

    def ask_back(self, runs: int) -> None:
        self.recall = runs
        self._tell()

    def ask_to_drain(self) -> None:
        self.drain = True
        self._tell()

    def cancel(self, run_id: UUID) -> None:
        self.stop.add(run_id)
        self._tell()

    def begin_outage(self, fault: Fault) -> None:
        self._outage = fault
        self._tell()

    def end_outage(self) -> None:
        self._outage = None

    def held_by_workers(self) -> int:
        return len(self._claimed)

    def when_reported(self, order: RunOrder, fault: Fault) -> None:
        """Put a fault in the way of the first exchange that reports this run."""
        self._faults_when_reported[order.run_id] = fault

    async def until(self, condition: Callable[[], object], timeout: float = 60.0) -> None:
        """Returns when `condition` holds; it is looked at after every exchange."""
        async with asyncio.timeout(timeout):
            while not condition():
                await self._changed.wait()

    async def outcome_of(self, order: RunOrder, timeout: float = 60.0) -> Outcome:
        await self.until(lambda: order.run_id in self.outcomes, timeout)
        return self.outcomes[order.run_id]

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        self.connected += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                body = await reader.readexactly(length)
                if head.startswith(b"GET /readyz "):
                    self.asked_if_ready += 1
                    self._tell()
                    writer.write(_http(200 if self.ready else 503, b"{}"))
                    continue
                request = _decode(body)
                assert head.startswith(b"POST /v1/exchange ")
                assert b"authorization: bearer secret\r\n" in head.lower()
                self._in_flight += 1
                self.most_in_flight = max(self.most_in_flight, self._in_flight)
                try:
                    answer = await self._answer(request)
                finally:
                    self._in_flight -= 1
                if answer is None:
                    return
                writer.write(answer)
                await writer.drain()
                if not answer.endswith(b"}"):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _answer(self, request: ExchangeRequest) -> bytes | None:
        arrived = time.monotonic()
        self.requests.append(request)
        self.arrivals.append(arrived)
        fault = self.faults.popleft() if self.faults else self._outage
        for outcome in request.outcomes:
            fault = self._faults_when_reported.pop(outcome.run_id, fault)
        self._tell()
        if fault is not None and (answer := await self._instead(fault)) is not None:
            return answer
        reply = await self._exchange(request)
        if reply is None:
            assert self._outage is not None
            return await self._instead(self._outage)
        if fault == "drop the answer":
            return None
        self.acknowledged = max(self.acknowledged, arrived)
        answer = _http(200, _encode(reply))
        return answer[:-5] if fault == "cut the answer short" else answer

    async def _instead(self, fault: Fault) -> bytes | None:
        """What is answered instead of carrying the exchange out; None when the fault strikes later."""
        if fault in _PROBLEMS:
            if fault == "unknown_worker":
                self._claimed.clear()
            return _problem(*_PROBLEMS[fault])
        if fault == "hang":
            await asyncio.Event().wait()
        return b"I am not a web server\r\n\r\n" if fault == "talk nonsense" else None

    async def _exchange(self, request: ExchangeRequest) -> ExchangeReply | None:
        """None when an outage began while it was parked."""
        if request.seq <= self._newest.get(request.worker_id, 0):
            return ExchangeReply(seq=request.seq, superseded=True)
        self._newest[request.worker_id] = request.seq
        self._record(request.outcomes)
        self._tell()
        reply = ExchangeReply(seq=request.seq, acked=len(request.outcomes))
        if request.recover:
            held = {line.run_id for line in request.inventory}
            reply.runs = [order for run_id, order in self._claimed.items() if run_id not in held]
        deadline = asyncio.get_running_loop().time() + request.wait_ms / 1000
        while True:
            if self._outage is not None:
                return None
            if self._newest[request.worker_id] != request.seq:
                reply.superseded = True
                return reply
            while self._ready and len(reply.runs) < request.free:
                order = self._ready.popleft()
                self._claimed[order.run_id] = order
                reply.runs.append(order)
            reply.stop = [run_id for run_id in self.stop if run_id in self._claimed]
            reply.recall, self.recall = self.recall, 0
            reply.drain = self.drain and not request.draining
            left = deadline - asyncio.get_running_loop().time()
            if reply.runs or reply.stop or reply.recall or reply.drain or left <= 0:
                return reply
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except TimeoutError:
                continue

    def _record(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            order = self._claimed.pop(outcome.run_id, None)
            if order is None:
                self.recorded_twice.append(outcome.run_id)
            else:
                self.outcomes[outcome.run_id] = outcome


def _problem(status: int, code: str) -> bytes:
    return _http(status, _encode(Problem(type="about:blank", title=code, status=status, code=code, detail=code)))


def _http(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        status,
        len(body),
        body,
    )
