"""The HTTP side of the worker: sends an exchange, or what its attempts print, and brings the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import httptools
import msgspec

from mainspring.kernel.http_connection import HttpConnection, HttpServer
from mainspring.wire.exchange import ExchangeReply, ExchangeRequest
from mainspring.wire.logs import LogReceipt
from mainspring.wire.problems import Problem

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_decode_reply = msgspec.json.Decoder(ExchangeReply).decode
_decode_receipt = msgspec.json.Decoder(LogReceipt).decode
_decode_problem = msgspec.json.Decoder(Problem).decode
_STORE_DOWN = "store_down"
_LOG_STORE_DOWN = "log_store_down"
_DEAD_INCARNATION = ("unknown_worker", "fenced")
_STALE = "stale_exchange"  # another copy of this exchange was carried out, and its answer went elsewhere
_PERHAPS_LATER = (401, 403, 429)
_MOST_IDLE = 2


class LinkError(Exception):
    """The exchange brought no answer to act on."""


class AnswerLost(LinkError):
    """Nobody can say whether it was carried out: no connection, no answer in time, or a server in trouble."""


class StoreDown(AnswerLost):
    """The server is there, and says that its database is not. What was under way may have been carried out."""


class LogStoreDown(AnswerLost):
    """The server is there and takes exchanges, but has no place for logs at the moment."""


class Refused(LinkError):
    """A server answered that it will not: a bad token, or a request it does not take. `final`: it never will."""

    def __init__(self, detail: str, status: int = 0) -> None:
        super().__init__(detail)
        self.final = status not in _PERHAPS_LATER


class IncarnationLost(LinkError):
    """The server does not know this incarnation any more; all that it held is somebody else's."""


class Link:
    def __init__(self, server: str, token: str, *, timeout: float) -> None:
        self._server = HttpServer(server)
        self._head = self._server.post("/v1/exchange", token)
        self._log_head = self._server.post("/v1/exchange/logs", token)
        self._timeout = timeout
        self._idle: list[HttpConnection] = []

    async def exchange(self, request: ExchangeRequest) -> ExchangeReply:
        """Send it and wait for the answer; raises a LinkError."""
        return _read(*await self._ask(self._head, _encode(request)))

    async def ship(self, shipment: bytes) -> LogReceipt:
        """Send a LogShipment, spelt, and wait for the receipt; raises a LinkError."""
        return _decoded(_decode_receipt, *await self._ask(self._log_head, shipment))

    async def _ask(self, head: bytes, body: bytes) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(self._timeout):
                connection = await self._connection()
                try:
                    return await connection.ask(head, body)
                finally:
                    self._put_back(connection)
        except TimeoutError:
            raise AnswerLost(f"no answer within {self._timeout:g} s") from None
        except (OSError, httptools.HttpParserError) as error:
            raise AnswerLost(str(error) or type(error).__name__) from error

    def close(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _connection(self) -> HttpConnection:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        return await self._server.connect()

    def _put_back(self, connection: HttpConnection) -> None:
        if connection.usable and len(self._idle) < _MOST_IDLE:
            self._idle.append(connection)
        else:
            connection.close()


def _read(status: int, body: bytes) -> ExchangeReply:
    return _decoded(_decode_reply, status, body)


def _decoded(decode: Callable[[bytes], T], status: int, body: bytes) -> T:
    if status == 200:
        try:
            return decode(body)
        except msgspec.MsgspecError as error:
            raise AnswerLost(f"the answer cannot be read: {error}") from None
    try:
        problem = _decode_problem(body)
        code, detail = problem.code, f"{status} {problem.code}: {problem.detail}"
    except msgspec.MsgspecError:
        code, detail = "", f"{status}: {body[:200].decode('utf-8', 'replace')}"
    if status == 409 and code in _DEAD_INCARNATION:
        raise IncarnationLost(detail)
    if status == 503 and code == _STORE_DOWN:
        raise StoreDown(detail)
    if status == 503 and code == _LOG_STORE_DOWN:
        raise LogStoreDown(detail)
    if status >= 500 or status < 400 or code == _STALE:
        raise AnswerLost(detail)
    raise Refused(detail, status)
