"""The HTTP side of the worker: sends an exchange, brings the answer.

HTTP/1.1 by hand over asyncio and httptools, for an exchange is one small request on a warm connection and stands in
the way of every run: measured with both ends in one process, 0.04 ms a round trip here and 0.85 ms with httpx.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import cast
from urllib.parse import urlsplit

import httptools
import msgspec

from mainspring.wire.exchange import ExchangeReply, ExchangeRequest
from mainspring.wire.problems import Problem

_encode = msgspec.json.Encoder().encode
_decode_reply = msgspec.json.Decoder(ExchangeReply).decode
_decode_problem = msgspec.json.Decoder(Problem).decode
_DEAD_INCARNATION = ("unknown_worker", "fenced")
_MOST_IDLE = 2


class LinkError(Exception):
    """The exchange brought no answer to act on."""


class AnswerLost(LinkError):
    """Nobody can say whether it was carried out: no connection, no answer in time, or a server in trouble."""


class Refused(LinkError):
    """A server answered that it will not: a bad token, or a request it does not take."""


class IncarnationLost(LinkError):
    """The server does not know this incarnation any more; all that it held is somebody else's."""


class Link:
    def __init__(self, server: str, token: str, *, timeout: float) -> None:
        url = urlsplit(server)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError(f"server: {server!r} is not an address such as http://127.0.0.1:8700")
        self._tls = ssl.create_default_context() if url.scheme == "https" else None
        self._host = url.hostname
        self._port = url.port or (443 if self._tls else 80)
        self._timeout = timeout
        self._idle: list[_Connection] = []
        self._head = (
            f"POST {url.path.rstrip('/')}/v1/exchange HTTP/1.1\r\nHost: {url.netloc.rpartition('@')[2]}\r\n"
            f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\nAccept: application/json\r\n"
            "Content-Length: "
        ).encode("ascii")

    async def exchange(self, request: ExchangeRequest) -> ExchangeReply:
        """Send it and wait for the answer; raises a LinkError."""
        body = _encode(request)
        try:
            async with asyncio.timeout(self._timeout):
                connection = await self._connection()
                try:
                    status, answer = await connection.ask(b"%b%d\r\n\r\n%b" % (self._head, len(body), body))
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

    async def _connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(_Connection, self._host, self._port, ssl=self._tls)
        return connection

    def _put_back(self, connection: _Connection) -> None:
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
    if status >= 500 or status < 400:
        raise AnswerLost(detail)
    raise Refused(detail)


class _Connection(asyncio.Protocol):
    """One keep-alive connection with at most one request under way."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._chunks: list[bytes] = []
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._at_rest = False

    @property
    def usable(self) -> bool:
        """The last answer came whole, and the server has not hung up since."""
        return self._at_rest and self._transport is not None and not self._transport.is_closing()

    async def ask(self, message: bytes) -> tuple[int, bytes]:
        """Status and body; if it is cut short, the connection is not used again."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the connection was closed")
        self._at_rest = False
        self._chunks = []
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(message)
        return await self._answer

    def close(self) -> None:
        self._at_rest = False
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._at_rest = True

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(error)
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._at_rest = False
        self._fail(error or ConnectionResetError("the server closed the connection without an answer"))

    # -- httptools

    def on_body(self, chunk: bytes) -> None:
        self._chunks.append(chunk)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200 or self._answer is None or self._answer.done():
            return
        self._at_rest = self._parser.should_keep_alive()
        self._answer.set_result((status, b"".join(self._chunks)))

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
