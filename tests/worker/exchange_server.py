"""The other end of the network for a worker under test: a small HTTP server that speaks the exchange.

It answers by the rules of the real server, which exchange_records.py has and test_exchange_parity.py holds it to.
Faults are put in front of the next exchanges: each is used once. An outage is a fault of every exchange until it is
over, of waiting ones too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

from mainspring.domain.errors import Conflict
from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock
from mainspring.kernel.config import DEFAULT_TIMING
from mainspring.kernel.ids import uuid7
from mainspring.store.workers import WorkerState
from mainspring.wire.death_notice import DeathNotice
from mainspring.wire.exchange import ExchangeReply, ExchangeRequest, LeaseGrant, Outcome, RunOrder
from mainspring.wire.problems import Problem
from mainspring.wire.protocol import PROTOCOL, SECRET_HEADER

from .exchange_records import Records, WorkerRow

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
# What the database knows of the worker when a server answers so.
_INCARNATION_OVER = {"unknown_worker": None, "fenced": WorkerState.LOST}
_NOT_PROVED = "this request does not prove that it comes from this worker"
_STOP_LOOK = 1.0
_RECALL_PAUSE = 0.1

_decode = msgspec.json.Decoder(ExchangeRequest).decode
_decode_notice = msgspec.json.Decoder(DeathNotice).decode
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


class Waiter(msgspec.Struct, eq=False):
    """One exchange from its arrival to its answer. A newer one of its worker supersedes it."""

    request: ExchangeRequest
    waits: bool = False
    superseded: bool = False


class Known(msgspec.Struct):
    """What a server remembers of a worker beside its row."""

    looked_at: float = float("-inf")
    recalled_at: float = float("-inf")
    told: dict[UUID, float] = msgspec.field(default_factory=dict)
    stop_hint: bool = False


class ExchangeServer:
    """`records` are shared by servers of one database. A worker is told to stop a run once in `tell_again` seconds."""

    def __init__(
        self,
        records: Records | None = None,
        *,
        clock: LoopClock = SYSTEM_CLOCK,
        tell_again: float = DEFAULT_TIMING.beat,
        grants: LeaseGrant | None = None,
    ) -> None:
        self.records = records or Records()
        self.requests: list[ExchangeRequest] = []
        self.secrets: dict[UUID, str] = {}  # of the workers that sent requests, by id
        self.arrivals: list[float] = []  # when each of them came (monotonic)
        self.outcomes: dict[UUID, Outcome] = {}  # that were reported here
        self.recorded_twice: list[UUID] = []
        self.faults: deque[Fault] = deque()
        self.ready = True  # what /readyz says
        self.grants = grants  # to workers that ask for a lease
        self.tokens_of_all_tenants = False
        self.asked_if_ready = 0
        self.notices: list[DeathNotice] = []
        self.notice_answers: deque[int] = deque()  # the statuses of the next answers to notices; then 200
        self.on_notice: Callable[[], None] = lambda: None
        self.acknowledged = 0.0  # when the last exchange arrived that was answered 200 (monotonic)
        self.most_in_flight = 0
        self.connected = 0
        self._clock = clock
        self._tell_again = tell_again
        self._outage: Fault | None = None
        self._idle_elsewhere = 0  # slots that others have free
        self._faults_when_reported: dict[UUID, Fault] = {}
        self._known: dict[UUID, Known] = {}
        self._waiters: dict[UUID, Waiter] = {}
        self._changed = asyncio.Event()
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
        await self.listen()
        return self

    async def listen(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", port, limit=2**24)

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

    @property
    def waiting(self) -> int:
        """How many exchanges wait here for something to do."""
        return sum(waiter.waits for waiter in self._waiters.values())

    def submit(self, *orders: RunOrder) -> None:
        self.records.ready.extend(orders)
        self._tell()

    def ask_back(self, runs: int) -> None:
        """Others could start so many runs: whoever holds unstarted ones is asked for them, once."""
        self._idle_elsewhere = runs
        self._tell()

    def ask_to_drain(self) -> None:
        for worker_id, row in self.records.workers.items():
            if row.state is WorkerState.LIVE:
                row.state = WorkerState.DRAINING
                self._known.setdefault(worker_id, Known()).stop_hint = True
        self._tell()

    def cancel(self, run_id: UUID) -> None:
        claim = self.records.claims[run_id]
        claim.cancel_requested = True
        self._known.setdefault(claim.worker_id, Known()).stop_hint = True
        self._tell()

    def begin_outage(self, fault: Fault) -> None:
        self._outage = fault
        self._tell()

    def end_outage(self) -> None:
        self._outage = None

    def held_by_workers(self) -> int:
        return len(self.records.claims)

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

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
                if head.startswith(b"POST /v1/exchange/gone "):
                    writer.write(self._take_notice(head, body))
                    continue
                request = _decode(body)
                assert head.startswith(b"POST /v1/exchange ")
                assert b"authorization: bearer secret\r\n" in head.lower()
                if not self.records.admits(request.worker_id, secret := _secret_in(head)):
                    writer.write(_problem(403, "wrong_incarnation", _NOT_PROVED, SECRET_HEADER))
                    continue
                self.secrets[request.worker_id] = secret
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

    def _take_notice(self, head: bytes, body: bytes) -> bytes:
        assert b"authorization" not in head.lower(), "the secret proves it"
        notice = _decode_notice(body)
        assert _secret_in(head) == notice.secret, "it is proved before its body is read"
        self.notices.append(notice)
        self.on_notice()
        self._tell()
        return _http(self.notice_answers.popleft() if self.notice_answers else 200, b"{}")

    async def _answer(self, request: ExchangeRequest) -> bytes | None:
        arrived = self._clock.monotonic()
        self.requests.append(request)
        self.arrivals.append(arrived)
        fault = self.faults.popleft() if self.faults else self._outage
        for outcome in request.outcomes:
            fault = self._faults_when_reported.pop(outcome.run_id, fault)
        self._tell()
        if fault is not None and (answer := await self._instead(fault, request)) is not None:
            return answer
        try:
            reply = await self._exchange(request)
        except Conflict as error:
            return _problem(409, error.code, error.detail, error.field)
        if reply is None:
            assert self._outage is not None
            return await self._instead(self._outage, request)
        if fault == "drop the answer":
            return None
        self.acknowledged = max(self.acknowledged, arrived)
        answer = _http(200, _encode(reply))
        return answer[:-5] if fault == "cut the answer short" else answer

    async def _instead(self, fault: Fault, request: ExchangeRequest) -> bytes | None:
        """What is answered instead of carrying the exchange out; None when the fault strikes later."""
        if fault in _PROBLEMS:
            if fault in _INCARNATION_OVER:
                self.records.end_worker(request.worker_id, _INCARNATION_OVER[fault])
                self._known.pop(request.worker_id, None)
            return _problem(*_PROBLEMS[fault])
        if fault == "hang":
            await asyncio.Event().wait()
        return b"I am not a web server\r\n\r\n" if fault == "talk nonsense" else None

    async def _exchange(self, request: ExchangeRequest) -> ExchangeReply | None:
        """None when an outage began while it waited."""
        row = self._know(request)
        stale = self.records.not_held(request.worker_id, request.progress)
        if (before := self._waiters.get(request.worker_id)) is not None:
            before.superseded = True
        waiter = self._waiters[request.worker_id] = Waiter(request)
        self._tell()
        try:
            reply = await self._serve(request, row, waiter)
        finally:
            if self._waiters.get(request.worker_id) is waiter:
                del self._waiters[request.worker_id]
            self._tell()
        if reply is not None:
            reply.fenced += stale
            if request.hello is not None and request.hello.lease is not None:
                reply.lease = self.grants
            reply.all_tenants = request.hello is not None and self.tokens_of_all_tenants
        return reply

    def _know(self, request: ExchangeRequest) -> WorkerRow:
        if request.hello is not None:
            self._known[request.worker_id] = Known()
            return self.records.register(request.worker_id, request.hello, self.secrets[request.worker_id])
        known = self._known.get(request.worker_id)
        row = self.records.workers.get(request.worker_id)
        if row is None or known is None or self._clock.monotonic() - known.looked_at >= _STOP_LOOK:
            row = self.records.living(request.worker_id)
            self._known.setdefault(request.worker_id, Known())
        return row

    async def _serve(self, request: ExchangeRequest, row: WorkerRow, waiter: Waiter) -> ExchangeReply | None:
        known = self._known[request.worker_id]
        deadline = self._clock.monotonic() + request.wait_ms / 1000
        writes = bool(request.outcomes) or request.recover or request.stopped or request.draining
        again = False
        while True:
            reply = ExchangeReply(seq=request.seq, protocol=PROTOCOL.number)
            takes = 0 if request.draining or row.state is not WorkerState.LIVE else request.free
            if writes or (takes and self.records.anything_ready(request)):
                try:
                    self._transact(request, reply, first=not again)
                except Conflict as error:
                    if error.code == "stale_exchange" and waiter.waits:
                        return ExchangeReply(seq=request.seq, superseded=True, protocol=PROTOCOL.number)
                    raise
                again = True
            self._look_for_stops(request.worker_id, known, reply)
            reply.drain = row.state is WorkerState.DRAINING and not request.draining
            now = self._clock.monotonic()
            if writes or reply.runs or reply.stop or reply.drain or now >= deadline:
                return reply
            if request.unstarted and now >= known.recalled_at + _RECALL_PAUSE:
                reply.recall = self._recalled(request)
                if reply.recall:
                    known.recalled_at = now
                    return reply
            if not waiter.waits:
                waiter.waits = True
                self._tell()
            with suppress(TimeoutError):
                async with self._clock.timeout(deadline - now):
                    await self._changed.wait()
            if self._outage is not None:
                return None
            if waiter.superseded:
                reply.superseded = True
                return reply

    def _transact(self, request: ExchangeRequest, reply: ExchangeReply, *, first: bool) -> None:
        row = self.records.advance(request, again=not first)
        if first and request.outcomes:
            new, reply.fenced = self.records.settle(request.worker_id, request.outcomes)
            reply.acked = len(request.outcomes)
            self.outcomes.update({outcome.run_id: outcome for outcome in new})
            self.recorded_twice += [outcome.run_id for outcome in request.outcomes if outcome not in new]
        if first and request.recover:
            reply.runs = self.records.lost_claims(request)
        free = request.free - len(reply.runs)
        if free > 0 and not request.draining and row.state is WorkerState.LIVE:
            reply.runs += self.records.claim(request, free)
        if first and (request.stopped or request.draining):
            row.state = WorkerState.STOPPED if request.stopped else WorkerState.DRAINING
        if request.stopped:
            self._known.pop(request.worker_id, None)

    def _look_for_stops(self, worker_id: UUID, known: Known, reply: ExchangeReply) -> None:
        now = self._clock.monotonic()
        if not known.stop_hint and now - known.looked_at < _STOP_LOOK and self._tell_again:
            return
        known.looked_at, known.stop_hint = now, False
        wanted = self.records.to_stop(worker_id)
        reply.stop = [run_id for run_id in wanted if now - known.told.get(run_id, 0.0) >= self._tell_again]
        known.told = {run_id: known.told.get(run_id, 0.0) for run_id in wanted}
        known.told.update(dict.fromkeys(reply.stop, now))

    def _recalled(self, request: ExchangeRequest) -> int:
        """How many of its unstarted runs the idle ones could start."""
        idle, self._idle_elsewhere = self._idle_elsewhere, 0
        others = (waiter for waiter in self._waiters.values() if waiter.waits)
        idle += sum(other.request.free for other in others if other.request.worker_id != request.worker_id)
        return min(request.unstarted, idle)


def _secret_in(head: bytes) -> str:
    return head.decode().partition(f"{SECRET_HEADER}: ")[2].partition("\r\n")[0]


def _problem(status: int, code: str, detail: str = "", field: str | None = None) -> bytes:
    problem = Problem("about:blank", code, status, code, detail or code, field)
    return _http(status, _encode(problem))


def _http(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        status,
        len(body),
        body,
    )
