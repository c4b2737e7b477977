"""One HTTP/1.1 connection of an http task: h11 over asyncio, one request at a time.

It uses h11 directly instead of a client library, for two reasons. The pool of httpcore checks every connection for
every request: 94 calls/s with 64 connections, against thousands here. And bytes that a server sends after its answer
must never be taken for the answer to the next request, which belongs to another job; only h11 reports such bytes.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import h11

from mainspring.kernel.clock import Timer

_CHUNK = 64 * 1024
_LONGEST_HEAD = 64 * 1024


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


@dataclass(slots=True)
class Received:
    """An answer. `cut`: the body was longer than the limit."""

    status: int
    headers: dict[str, str]
    body: bytes
    cut: bool


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


class Connection:
    """A connection to an address that was checked for `origin`. It has no timeouts: the attempt has one."""

    def __init__(self, origin: Origin, reader: UnreadCounter, writer: asyncio.StreamWriter) -> None:
        self.origin = origin
        self.expiry: Timer | None = None
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_LONGEST_HEAD)
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
        parts = [h11.Request(method=method, target=target, headers=headers), h11.Data(content), h11.EndOfMessage()]
        with suppress(OSError):  # a server may answer and close before it has read everything
            self._writer.write(b"".join(self._http.send(part) or b"" for part in parts))
            await self._writer.drain()
        try:
            return await self._answer(limit)
        except h11.RemoteProtocolError as error:
            nothing = self._http.their_state is h11.ERROR and self._reader.at_eof() and "SEND_RESPONSE" in str(error)
            words = "the server closed the connection without an answer" if nothing else str(error)
            raise RemoteProtocolError(words) from None
        except OSError as error:
            raise ReadError(f"the connection broke: {error}") from None

    async def _answer(self, limit: int) -> Received:
        head = await self._event()
        while not isinstance(head, h11.Response):  # 100 Continue, 103 Early Hints
            head = await self._event()
        body = bytearray()
        while isinstance(event := await self._event(), h11.Data):
            body += event.data
            if len(body) > limit:
                return Received(head.status_code, _joined(head.headers), bytes(body[:limit]), True)
        http = self._http
        if http.our_state is h11.DONE and http.their_state is h11.DONE and not http.trailing_data[0]:
            http.start_next_cycle()
            self._at_rest = True
        return Received(head.status_code, _joined(head.headers), bytes(body), False)

    async def _event(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(_CHUNK))
        return event


def _joined(pairs: Any) -> dict[str, str]:
    """Headers by their name in lower case; repeated headers are joined with commas."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in pairs:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers
