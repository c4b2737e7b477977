"""HTTP as uvicorn reads it, with bounds on what is parsed before a request is known.

The parser collects a header until it is complete, and copies what it has with every piece that arrives: one header of
80 MB held up the server for 5.9 s, and needed no token. Here the head of a request has 64 KiB, and so has what follows
a body (trailers, or the framing of an endless chunk). More is answered 431, and the connection is closed.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mainspring.kernel.config import MAX_HEAD_BYTES

_MOST_WAITING = 32  # requests that a client sent without waiting for the answers before
_TEXT = b"the head of the request is too large\n"
_REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(_TEXT), _TEXT)
)


class BoundedHttpProtocol(HttpToolsProtocol):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unaccounted = 0  # bytes since the parser last came to an end of something
        self._body_bytes = 0  # of the request that is read

    def data_received(self, data: bytes) -> None:
        if len(data) + self._unaccounted < MAX_HEAD_BYTES:
            self._unaccounted += len(data)
            super().data_received(data)
        else:
            self._feed_in_pieces(data)

    def _feed_in_pieces(self, data: bytes) -> None:
        """Feed what may still belong to a head; the rest only when the parser has come further."""
        start = 0
        while start < len(data):
            room = MAX_HEAD_BYTES - self._unaccounted
            body = self._body_left()
            piece = data if not start and len(data) <= max(room, body) else data[start : start + max(room, body)]
            self._unaccounted += max(0, len(piece) - body)
            super().data_received(piece)
            start += len(piece)
            if self.transport.is_closing():
                return
            if self._unaccounted >= MAX_HEAD_BYTES:
                self.transport.write(_REFUSAL)
                self.transport.close()
                return

    def _body_left(self) -> int:
        """How many of the next bytes are certainly those of a body."""
        if self.cycle is None or not self.cycle.more_body or self.cycle.scope is not self.scope:
            return 0
        for name, value in self.headers:
            if name == b"content-length":
                return max(0, int(value) - self._body_bytes)
        return 0

    def on_headers_complete(self) -> None:
        self._unaccounted = 0
        self._body_bytes = 0
        if len(self.pipeline) >= _MOST_WAITING:
            raise ValueError("too many requests at once on one connection")  # the parser stops, and 400 is answered
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unaccounted = 0
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unaccounted = 0
        super().on_message_complete()
