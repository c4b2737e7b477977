"""The HTTP side of the worker: sends an exchange, brings the answer."""

from __future__ import annotations

import asyncio

import httptools
import msgspec

from mainspring.kernel.http_connection import HttpConnection, HttpServer
from mainspring.wire.exchange import ExchangeReply, ExchangeRequest
from mainspring.wire.problems import Problem

_encode = msgspec.json.Encoder().encode
_decode_reply = msgspec.json.Decoder(ExchangeReply).decode
_decode_problem = msgspec.json.Decoder(Problem).decode
_STORE_DOWN = "store_down"
_DEAD_INCARNATION = ("unknown_worker", "fenced")
_STALE = "stale_exchange"  # another copy of this exchange was carried out, and its answer went elsewhere
_MOST_IDLE = 2


class LinkError(Exception):
    """The exchange brought no answer to act on."""


class AnswerLost(LinkError):
    """Nobody can say whether it was carried out: no connection, no answer in time, or a server in trouble."""


class StoreDown(AnswerLost):
    """The server is there, and says that its database is not. What was under way may have been carried out."""


class Refused(LinkError):
    """A server answered that it will not: a bad token, or a request it does not take."""


class IncarnationLost(LinkError):
    """The server does not know this incarnation any more; all that it held is somebody else's."""


class Link:
    def __init__(self, server: str, token: str, *, timeout: float) -> None:
        self._server = HttpServer(server)
        self._head = self._server.post("/v1/exchange", token)
        self._timeout = timeout
        self._idle: list[HttpConnection] = []

    async def exchange(self, request: ExchangeRequest) -> ExchangeReply:
        """Send it and wait for the answer; raises a LinkError."""
        body = _encode(request)
        try:
            async with asyncio.timeout(self._timeout):
                connection = await self._connection()
                try:
                    status, answer = await connection.ask(self._head, body)
                finally:
                    self._put_back(connection)
        except TimeoutError:
            raise AnswerLost(f"no answer within {self._timeout:g} s") from None
        except (OSError, httptools.HttpParserError) as error:
            raise AnswerLost(str(error) or type(error).__name__) from error
        return _read(status, answer)

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
    if status == 200:
        try:
            return _decode_reply(body)
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
    if status >= 500 or status < 400 or code == _STALE:
        raise AnswerLost(detail)
    raise Refused(detail)
