"""One HTTP/1.1 connection of an http task, over asyncio, one request at a time.

It is not that of a client library, see docs/decisions/0024-our-own-http-client.md. The pool of httpcore checks every
connection for every request: 94 calls/s with 64 connections, against thousands here. And bytes that a server sends
after its answer must never be taken for the answer to the next request, which belongs to another job.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from contextlib import suppress
from typing import Any, NamedTuple

from mainspring.kernel.clock import Timer
from mainspring.kinds.http.parser import AnswerParser, BadAnswer, Received

_CHUNK = 64 * 1024


class TransportError(Exception):
    """No answer arrived. The names are those of httpx, because users write them into retry rules.

    TransportError
        NetworkError: ConnectError (NameNotFound), ReadError
        ConnectTimeout
        RemoteProtocolError: the answer is not HTTP, or incomplete
    """


class NetworkError(TransportError): ...


class ConnectError(NetworkError): ...


class NameNotFound(ConnectError): ...


class ReadError(NetworkError): ...


class ConnectTimeout(TransportError): ...


class RemoteProtocolError(TransportError): ...


class Origin(NamedTuple):
    scheme: str
    host: str
    port: int


class UnreadCounter(asyncio.StreamReader):
    """Counts the bytes that have arrived and have not been read."""

    unread = 0

    def feed_data(self, data: Any) -> None:
        self.unread += len(data)
        super().feed_data(data)

    async def read(self, n: int = -1) -> bytes:
        data = await super().read(n)
        self.unread -= len(data)
        return data


class TaskConnection:
    """A connection to an address that was checked for `origin`. It has no timeouts: the attempt has one."""

    def __init__(self, origin: Origin, reader: UnreadCounter, writer: asyncio.StreamWriter) -> None:
        self.origin = origin
        self.expiry: Timer | None = None
        self._reader = reader
        self._writer = writer
        self._at_rest = True

    @property
    def reusable(self) -> bool:
        """The last answer was read completely, nothing followed it, and the server has not closed the connection."""
        return self._at_rest and not (
            self._reader.unread or self._reader.at_eof() or self._writer.transport.is_closing()
        )

    def close(self) -> None:
        """Close at once: a plain close would wait until the peer has read everything."""
        self._at_rest = False
        self._writer.transport.abort()

    async def ask(
        self, method: str, target: bytes, headers: list[tuple[str, str]], content: bytes, limit: int
    ) -> Received:
        """Send a request and read its answer, up to `limit` bytes of the body. Raises TransportError."""
        self._at_rest = False
        head = _head(method, target, headers)
        with suppress(OSError):  # a server may answer and close before it has read everything
            self._writer.write(head + content)
            await self._writer.drain()
        parser = AnswerParser(method, limit)
        try:
            while parser.answer is None:
                data = await self._reader.read(_CHUNK)
                if data:
                    parser.feed(data)
                elif not parser.started:
                    raise BadAnswer("the server closed the connection without an answer")
                else:
                    parser.end()
        except BadAnswer as error:
            raise RemoteProtocolError(str(error)) from None
        except OSError as error:
            raise ReadError(f"the connection broke: {in_words(error)}") from None
        self._at_rest = parser.reusable
        return parser.answer


def in_words(error: Exception) -> str:
    """What went wrong, without the address: the author of a job must not learn what the names inside resolve to."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or type(error).__name__}"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return type(error).__name__ if isinstance(error, OSError) else str(error)


def _head(method: str, target: bytes, headers: list[tuple[str, str]]) -> bytes:
    """The head of a request. Nothing in it can end a line, which would start another header or request."""
    lines = [f"{method} {target.decode('ascii')} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    if any(mark in line for line in lines for mark in "\r\n\0"):
        raise RemoteProtocolError("the request has a line break or a zero byte in its head")
    return "\r\n".join([*lines, "", ""]).encode("ascii")
