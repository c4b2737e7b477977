"""The HTTP client of the worker: sends exchanges and logs, and returns the answers.

With several servers it uses one until that one fails, does not answer in time, or reports trouble; then it uses the
next. preferred_server.py decides when to move back to a better one. The worker keeps its incarnation: an exchange may
be repeated at any server of the database.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import httptools
import msgspec

from mainspring.kernel.addresses import ServerRotation, split_addresses
from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock
from mainspring.kernel.http_client import HttpConnection, HttpServer
from mainspring.kernel.logs import get_logger
from mainspring.kernel.trust import tls_failure
from mainspring.wire.exchange import ExchangeReply, ExchangeRequest, WorkerHello
from mainspring.wire.logs import LogReceipt
from mainspring.wire.problems import Problem
from mainspring.wire.protocol import BASE_PROTOCOL, PROTOCOL, SECRET_HEADER, WireProtocol

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_decode_reply = msgspec.json.Decoder(ExchangeReply).decode
_decode_receipt = msgspec.json.Decoder(LogReceipt).decode
_decode_problem = msgspec.json.Decoder(Problem).decode
_STORE_DOWN = "store_down"
_LOG_STORE_DOWN = "log_store_down"
_DEAD_INCARNATION = ("unknown_worker", "fenced")
_STALE = "stale_exchange"
_UNKNOWN_FIELD = "unknown_field"
_PERHAPS_LATER = (401, 403, 429)
_CONTENTS = (400, 413, 422)
_MOST_IDLE = 2
# An answer is late this many seconds after `wait_ms`. Exchanges that start meanwhile go to another server. A worker
# that gave up only after the timeout of two beats would lose its lease to one server that hangs.
_LATE = 0.15

log = get_logger("server_client")


class ServerClientError(Exception):
    """The exchange brought no answer that the worker can act on."""


class AnswerLost(ServerClientError):
    """It is unknown whether the request was carried out: no connection, no answer in time, or a server error."""


class StoreDown(AnswerLost):
    """The server answers that its database is unreachable. The request may have been carried out."""


class LogStoreDown(AnswerLost):
    """The server takes exchanges but cannot store logs at the moment."""


class Overtaken(AnswerLost):
    """Another copy of this exchange, or a later exchange, was carried out before."""


class ExchangeRefused(ServerClientError):
    """A server refused the request: a bad token, or a request that it does not accept.

    final: the same request will never be accepted. contents: something in the request is wrong or too large; the rest
    of it may be accepted without that.
    """

    def __init__(self, detail: str, problem: Problem) -> None:
        super().__init__(detail)
        self.problem = problem
        self.final = problem.status not in _PERHAPS_LATER
        self.contents = problem.status in _CONTENTS


class IncarnationLost(ServerClientError):
    """The server does not know this incarnation any more. Its runs have been given to others."""


class ServerClient:
    """`servers` is one address, or several separated by commas, the best first. `beside` is another client of the same
    servers with a longer timeout. It leaves a late server and moves back to a better one together with this client.
    `ca`: the file of the authorities that are trusted, if not those of the system."""

    def __init__(
        self,
        servers: str,
        token: str,
        *,
        timeout: float,
        beside: ServerClient | None = None,
        ca: str | None = None,
        protocol: WireProtocol = PROTOCOL,
        clock: LoopClock = SYSTEM_CLOCK,
    ) -> None:
        addresses = split_addresses(servers) or (servers,)
        self._clock = clock
        self._servers = {address: _Server(address, token, clock, ca) for address in addresses}
        self._rota = ServerRotation(addresses)
        self._timeout = timeout
        self._left: list[_Server] = []
        self._beside = beside
        self._protocol = protocol
        self._hello: WorkerHello | None = None  # the last one that was answered
        self._hello_protocol = BASE_PROTOCOL
        self.hello_outdated = False  # the server takes fields of it that were not sent

    @property
    def server(self) -> str:
        """The address in use."""
        return self._rota.current

    @property
    def protocol(self) -> int:
        """What the server in use has announced."""
        return self._servers[self._rota.current].protocol

    @property
    def servers(self) -> int:
        """The number of servers."""
        return len(self._servers)

    @property
    def better(self) -> tuple[str, ...]:
        """Servers that are preferred to the current one, the best first."""
        beside = () if self._beside is None else self._beside.better
        return max(self._rota.better, beside, key=len)

    @property
    def untried(self) -> bool:
        """Whether the next exchange goes to a server that has not failed since the last answer."""
        return self._rota.untried

    @property
    def late(self) -> bool:
        """Whether an answer of the current server is overdue."""
        return self._servers[self._rota.current].late

    async def exchange(self, request: ExchangeRequest, secret: str = "") -> ExchangeReply:
        """Send an exchange and return the answer; raises ServerClientError. `secret`: that of the incarnation."""
        server = self._choose()
        due = self._clock.monotonic() + request.wait_ms / 1000 + _LATE
        server.due.append(due)
        announced = server.protocol
        try:
            carries = bool(request.outcomes or request.progress)
            body = _encode(self._protocol.fit(request, announced))
            reply = await self._talk(server, server.heads(secret).exchange, body, _decode_reply, carries=carries)
        except ServerClientError as error:
            server.protocol = BASE_PROTOCOL  # what runs at this address may be another version by now
            if (
                announced > BASE_PROTOCOL
                and isinstance(error, ExchangeRefused)
                and error.problem.code == _UNKNOWN_FIELD
            ):
                raise AnswerLost(f"the server no longer takes what it announced: {error}") from error
            raise
        finally:
            server.due.remove(due)
        self._announced(server, None if reply.superseded else request.hello, announced, reply.protocol)
        return reply

    async def ship(self, shipment: bytes, secret: str = "") -> LogReceipt:
        """Send an encoded LogShipment and return the receipt; raises ServerClientError. `secret`: that of the
        incarnation."""
        server = self._servers[self._rota.current]
        return await self._talk(server, server.heads(secret).logs, shipment, _decode_receipt, carries=True)

    async def is_ready(self, address: str, within: float) -> bool:
        """Whether a server is ready, by its /readyz, which needs no token."""
        server = self._servers[address]
        try:
            async with self._clock.timeout(within):
                connection = await server.connect()
                try:
                    status, _ = await connection.ask(server.ready_head, b"")
                finally:
                    connection.close()
        except (OSError, httptools.HttpParserError):  # a TimeoutError is an OSError
            return False
        return status == 200

    def move(self, address: str) -> bool:
        """Use this better server from the next exchange on; False if it is not better than the current one."""
        moved = self._rota.go_to(address)
        if self._beside is not None:
            moved = self._beside.move(address) or moved
        return moved

    def leave(self, address: str) -> None:
        """This server does not answer and another one does: use that one, and fail the requests that wait here."""
        self._rota.failed(address)
        self._servers[address].hang_up()

    def close(self) -> None:
        for server in self._servers.values():
            server.close()

    def _announced(self, server: _Server, hello: WorkerHello | None, before: int, now: int) -> None:
        """The server says what it takes. A hello goes out before any server has said so, and is sent again if that
        makes a difference."""
        server.protocol = now
        if hello is not None:
            self._hello, self._hello_protocol = hello, before
        self.hello_outdated = False
        if self._hello is not None and now > self._hello_protocol:
            sent, whole = (self._protocol.fit(self._hello, number) for number in (self._hello_protocol, now))
            self.hello_outdated = sent != whole
            if not self.hello_outdated:
                self._hello_protocol = now

    def _choose(self) -> _Server:
        """The current server, or the next one if an answer of the current one is late."""
        server = self._servers[self._rota.current]
        if server.late and self._rota.failed(server.address):
            log.warning("the server is late; going to another", server=self._rota.current, late=server.address)
            self._left.append(server)
            server = self._servers[self._rota.current]
        return server

    async def _talk(
        self, server: _Server, head: bytes, body: bytes, decode: Callable[[bytes], T], *, carries: bool
    ) -> T:
        """`carries`: the request has contents that the server may refuse. That does not count as a server failure."""
        try:
            answer = _decoded(decode, *await self._ask(server, head, body))
        except (IncarnationLost, Overtaken):
            self._rota.answered()  # the answer comes from the database: another server would say the same
            raise
        except ServerClientError as error:
            if carries and isinstance(error, ExchangeRefused) and error.contents:
                raise
            if self._rota.failed(server.address):
                log.warning("going to another server", server=self._rota.current, left=server.address, why=str(error))
            raise
        self._rota.answered()
        if self._left:
            self._leave_late_servers(server)
        return answer

    def _leave_late_servers(self, answering: _Server) -> None:
        """Another server answers: fail the requests that still wait at late servers, so that the slots they ask for do
        not stay empty until the timeout."""
        for server in self._left:
            if server is not answering:
                server.hang_up()
                if self._beside is not None:
                    self._beside.leave(server.address)
        self._left.clear()

    async def _ask(self, server: _Server, head: bytes, body: bytes) -> tuple[int, bytes]:
        try:
            async with self._clock.timeout(self._timeout):
                connection = await server.connection()
                server.busy.add(connection)
                try:
                    return await connection.ask(head, body)
                finally:
                    server.busy.discard(connection)
                    server.put_back(connection)
        except TimeoutError:
            raise AnswerLost(f"no answer within {self._timeout:g} s") from None
        except (OSError, httptools.HttpParserError) as error:
            failure = tls_failure(error)
            if failure is not None:
                raise AnswerLost(f"{failure.why}: {failure.hint}") from error
            raise AnswerLost(str(error) or type(error).__name__) from error


class _Heads(NamedTuple):
    """The heads of requests of one incarnation."""

    secret: str
    exchange: bytes
    logs: bytes


class _Server:
    """One server: the heads of requests to it, its open connections, and when its answers are due."""

    def __init__(self, address: str, token: str, clock: LoopClock, ca: str | None) -> None:
        self.address = address
        self.protocol = BASE_PROTOCOL
        self._now = clock.monotonic
        self.due: list[float] = []
        self.idle: list[HttpConnection] = []
        self.busy: set[HttpConnection] = set()
        self._server = HttpServer(address, ca)
        self._token = token
        self._heads = self._make_heads("")
        self.ready_head = self._server.get("/readyz")

    @property
    def late(self) -> bool:
        return bool(self.due) and min(self.due) < self._now()

    def heads(self, secret: str) -> _Heads:
        if secret != self._heads.secret:
            self._heads = self._make_heads(secret)
        return self._heads

    def _make_heads(self, secret: str) -> _Heads:
        proof = {SECRET_HEADER: secret} if secret else {}
        paths = ("/v1/exchange", "/v1/exchange/logs")
        return _Heads(secret, *(self._server.post(path, self._token, proof) for path in paths))

    async def connection(self) -> HttpConnection:
        while self.idle:
            connection = self.idle.pop()
            if connection.usable:
                return connection
        return await self._server.connect()

    async def connect(self) -> HttpConnection:
        return await self._server.connect()

    def put_back(self, connection: HttpConnection) -> None:
        if connection.usable and len(self.idle) < _MOST_IDLE:
            self.idle.append(connection)
        else:
            connection.close()

    def hang_up(self) -> None:
        """Close the connections that wait for an answer; the requests raise OSError."""
        for connection in tuple(self.busy):
            connection.close("it was late, and another server answers")

    def close(self) -> None:
        for connection in self.idle:
            connection.close()
        self.idle.clear()


def _decoded(decode: Callable[[bytes], T], status: int, body: bytes) -> T:
    if status == 200:
        try:
            return decode(body)
        except msgspec.MsgspecError as error:
            raise AnswerLost(f"the answer cannot be read: {error}") from None
    try:
        problem = _decode_problem(body)
        problem.status = status
        code, detail = problem.code, f"{status} {problem.code}: {problem.detail}"
    except msgspec.MsgspecError:
        text = body[:200].decode("utf-8", "replace")
        problem = Problem(type="about:blank", title="", status=status, code="", detail=text)
        code, detail = "", f"{status}: {text}"
    if status == 409 and code in _DEAD_INCARNATION:
        raise IncarnationLost(detail)
    if status == 503 and code == _STORE_DOWN:
        raise StoreDown(detail)
    if status == 503 and code == _LOG_STORE_DOWN:
        raise LogStoreDown(detail)
    if code == _STALE:
        raise Overtaken(detail)
    if status >= 500 or status < 400:
        raise AnswerLost(detail)
    raise ExchangeRefused(detail, problem)
