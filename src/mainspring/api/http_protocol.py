"""HTTP as uvicorn reads it, with bounds on what a client may send and on how long it may take.

The parser collects a header until it is complete, and copies what it has with every piece that arrives: one header of
80 MB held up the server for 5.9 s, and needed no token. Here the head of a request has 64 KiB, and so has what follows
a body (trailers, or the framing of an endless chunk). More is answered 431, and the connection is closed.

`deadline` says when the client must have got on; connections.py compares it with the time once a second:

    a head                      10 s, from the connection or from its first byte
    a body                      at least 120 KiB, or the rest of it, every 30 s
    an answer that is not read  the same, as the client's acknowledgements show it
    between two requests        75 s
    a request that is worked on no limit: long polls and followed logs last as long as they need
"""

from __future__ import annotations

import asyncio
import termios
from array import array
from collections.abc import Callable, Sized
from contextlib import suppress
from enum import Enum
from fcntl import ioctl
from math import inf
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from mainspring.api.connections import Connections
from mainspring.api.early_refusals import (
    ENCODING,
    FULL,
    HEAD_TOO_LARGE,
    MALFORMED,
    OTHER_TARGET,
    TLS_HEADER,
    TOO_MANY_AHEAD,
    TOO_SLOW,
    UPGRADE,
    through_tls,
    twice,
)
from mainspring.api.page import is_page
from mainspring.kernel import metrics
from mainspring.kernel.config import LARGE_BYTES, MAX_HEAD_BYTES
from mainspring.wire.protocol import SECRET_HEADER, WORKER_HEADER
from mainspring.wire.sessions import CSRF_HEADER

_MOST_WAITING = 32  # requests of one piece of data that wait for the answers before
_ONCE = frozenset(
    {
        b"host",
        b"authorization",
        b"content-length",
        b"content-type",
        b"transfer-encoding",
        b"origin",
        b"if-match",
        b"last-event-id",
        b"cookie",
        b"sec-fetch-site",
        CSRF_HEADER.lower().encode(),
        SECRET_HEADER.lower().encode(),
        WORKER_HEADER.lower().encode(),
    }
)
_TLS_HEADER = (TLS_HEADER[0].encode(), TLS_HEADER[1].encode())
_URGENT = (b"/healthz", b"/readyz", b"/metrics", b"/v1/exchange")  # served also when there are too many connections


class Reading(Enum):
    """What the client is sending."""

    NOTHING = "nothing"
    HEAD = "head"
    BODY = "body"


class _Flow(FlowControl):
    """Reads nothing more while requests wait for the answers before: they stay in the socket's buffer."""

    def __init__(self, transport: asyncio.Transport, waiting: Sized) -> None:
        super().__init__(transport)
        self._waiting = waiting

    def resume_reading(self) -> None:
        if not self._waiting:
            super().resume_reading()


class _LingeringTransport:
    """The transport as a request with a large body sees it. If the answer comes before all of the body, the rest of the
    body is dropped before the connection is closed: otherwise the client would find the connection reset, and never see
    the answer."""

    def __init__(self, transport: asyncio.Transport, linger: Callable[[], bool]) -> None:
        self._transport = transport
        self._linger = linger
        self.write = transport.write
        self.is_closing = transport.is_closing

    def close(self) -> None:
        if not self._linger():
            self._transport.close()


def _let_go(cycle: RequestResponseCycle | None) -> None:
    """Give a request its own `send` back. The other one refers to the request, which refers to the body: only the
    garbage collector would free them, and it comes too late for many bodies of 64 MiB."""
    if cycle is not None:
        vars(cycle).pop("send", None)


class BoundedHttpProtocol(HttpToolsProtocol):
    def __init__(self, *args: Any, edge: Connections | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unaccounted = 0  # bytes since the parser last came to an end of something
        self._body_bytes = 0  # of the request that is read
        self._edge = edge or Connections()
        self._limits = self._edge.limits
        self._reading = Reading.HEAD
        self._moved = 0  # bytes of the body when the window began
        self._unsent = 0  # bytes that the client had not taken when the window began
        self._authenticated = False
        self._only_urgent = False
        self._refusal: bytes | None = None
        self._left = 0.0  # bytes of a body that are dropped, because its request is answered
        self._served: RequestResponseCycle | None = None  # the request that is worked on; `cycle` is the latest
        self.address = ""
        self.deadline = inf

    # --- what the client sends

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _Flow(transport, self.pipeline)
        self.address = self.client[0] if self.client else ""
        self.deadline = self._edge.now + self._limits.head
        self._only_urgent = not self._edge.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._edge.closed(self)
        if self._served is not None and not self._served.response_complete:
            self._served.disconnected = True
            self._served.message_event.set()
        self._forget()

    def _forget(self) -> None:
        """Let go of the requests. They refer to this connection, so only the garbage collector would free them."""
        for cycle in (self.cycle, self._served, *(waiting for waiting, _ in self.pipeline)):
            _let_go(cycle)
        self.pipeline.clear()
        self.cycle = self.scope = self.headers = self._served = None  # type: ignore[assignment]
        self.url = b""

    def data_received(self, data: bytes) -> None:
        if self._left > 0:
            self._drop(len(data))
        elif len(data) + self._unaccounted < MAX_HEAD_BYTES:
            self._unaccounted += len(data)
            self._parse(data)
        else:
            self._feed_in_pieces(data)

    def _parse(self, data: bytes) -> None:
        """Parse as uvicorn does, but without a line in the log, which any client could fill."""
        if self.transport.is_closing():  # with TLS, data may still come
            return
        try:
            self.parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            if self._refusal is not FULL:
                metrics.requests_malformed.inc()
            self._refuse(self._refusal or MALFORMED)

    def _feed_in_pieces(self, data: bytes) -> None:
        """Feed what may still belong to a head; the rest only when the parser has come further."""
        start = 0
        while start < len(data):
            room = MAX_HEAD_BYTES - self._unaccounted
            body = self._body_left()
            piece = data if not start and len(data) <= max(room, body) else data[start : start + max(room, body)]
            self._unaccounted += max(0, len(piece) - body)
            self._parse(piece)
            start += len(piece)
            if self.transport.is_closing():
                return
            if self._unaccounted >= MAX_HEAD_BYTES:
                self._refuse(HEAD_TOO_LARGE)
                return

    def _body_left(self) -> int:
        """How many of the next bytes are certainly those of a body."""
        if self.cycle is None or not self.cycle.more_body or self.cycle.scope is not self.scope:
            return 0
        for name, value in self.headers:
            if name == b"content-length":
                return max(0, int(value) - self._body_bytes)
        return 0

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["connection"] = self  # type: ignore[typeddict-unknown-key]
        if self._reading is Reading.NOTHING:  # otherwise its time began with the connection
            self._reading = Reading.HEAD
            self.deadline = self._edge.now + self._limits.head

    def on_headers_complete(self) -> None:
        self._unaccounted = 0
        self._body_bytes = self._moved = 0
        self._check_head()
        self._reading = Reading.BODY
        self.deadline = self._edge.now + self._limits.window
        super().on_headers_complete()
        if is_page(self.url):
            self.cycle.default_headers = []  # a page has others than the API
        if self.scheme == "https":
            self.cycle.default_headers = [*self.cycle.default_headers, _TLS_HEADER]
        if self._only_urgent:
            self.cycle.keep_alive = False
        if self._may_be_large():
            self._answer_early(self.cycle)

    def _check_head(self) -> None:
        """Raise ValueError if the request is refused, with `_refusal`. Then the parser stops."""
        once = [name for name, _ in self.headers if name in _ONCE]
        if self.parser.should_upgrade():  # the parser would stop here, and take the body for the next request
            self._refusal = UPGRADE
        elif len(once) != len(set(once)):
            self._refusal = twice(next(name for name in once if once.count(name) > 1).decode())
        elif self._has_other_encoding():
            self._refusal = ENCODING
        elif self._has_other_target():
            self._refusal = OTHER_TARGET
        elif len(self.pipeline) >= _MOST_WAITING:
            self._refusal = TOO_MANY_AHEAD
        elif self._only_urgent and not self.url.startswith(_URGENT):
            self._refusal = FULL
        else:
            return
        raise ValueError("the request is refused")

    def _has_other_encoding(self) -> bool:
        """Whether the body is encoded otherwise than in chunks. The parser would read only its chunks."""
        encoding = self._header(b"transfer-encoding")
        return encoding is not None and (encoding.lower() != b"chunked" or self.parser.get_http_version() == "1.0")

    def _has_other_target(self) -> bool:
        """Whether the request line names another server than Host, which is the one that is checked."""
        if self.url.startswith(b"/") or self.url == b"*":
            return False
        authority = self.url.partition(b"://")[2].partition(b"/")[0].partition(b"?")[0]
        return authority.lower() != (self._header(b"host") or b"").lower()

    def _header(self, name: bytes) -> bytes | None:
        return next((value.strip() for found, value in self.headers if found == name), None)

    def _may_be_large(self) -> bool:
        length = self._header(b"content-length")
        return self._header(b"transfer-encoding") is not None if length is None else int(length) > LARGE_BYTES

    def _answer_early(self, cycle: RequestResponseCycle) -> None:
        """If this request is answered before its body has arrived, the connection is closed after the answer. To keep
        it, the rest of the body would have to be parsed: 30 refused bodies took 100 ms in each turn of the loop."""

        async def closing(message: Any) -> None:
            _let_go(cycle)
            if self._reading is Reading.BODY and self.cycle is cycle:
                cycle.keep_alive = False
            await cycle.send(message)

        cycle.send = closing  # type: ignore[method-assign]
        cycle.transport = _LingeringTransport(self.transport, self._linger)  # type: ignore[assignment]

    def _linger(self) -> bool:
        """The answer is complete. Return whether the connection stays open for the rest of the body."""
        if self._reading is not Reading.BODY or self.transport.is_closing():
            return False
        self._left = self._body_left() if self._header(b"content-length") is not None else inf
        self.deadline = self._edge.now + self._limits.window
        return True

    def _drop(self, size: int) -> None:
        """More of a body whose request is answered."""
        self._left -= size
        if self._left <= 0 and not self.transport.is_closing():
            self._close()

    def on_body(self, body: bytes) -> None:
        self._unaccounted = 0
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unaccounted = 0
        self._reading = Reading.NOTHING
        if self.cycle.response_complete or self.flow.write_paused:
            self.deadline = self._deadline_between()
        else:
            self.deadline = inf
            if not self._authenticated:
                self._edge.busy(self)
        super().on_message_complete()

    # --- what the server answers

    def authenticated(self) -> None:
        """A request on this connection had a valid token."""
        if not self._authenticated:
            self._authenticated = True
            self._edge.busy(self)

    def on_response_complete(self) -> None:
        """Does what uvicorn does, but with a deadline instead of a timer."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
            self.flow.resume_reading()
            return
        self.flow.resume_reading()
        if self._reading is Reading.NOTHING and not self.flow.write_paused:
            self.deadline = self._edge.now + self._limits.idle
        if not self._authenticated:
            self._edge.waits(self)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._served = cycle
        super()._start_asgi_task(cycle, app)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unsent = self._bytes_unsent()
        self.deadline = min(self.deadline, self._edge.now + self._limits.window)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reading is Reading.NOTHING:
            self.deadline = self._deadline_between()

    # --- when time is up

    @property
    def idle(self) -> bool:
        """Between two requests."""
        return self._reading is Reading.NOTHING and not self._answering and not self.flow.write_paused

    def expire(self, now: float) -> None:
        limits = self._limits
        self.deadline = now + limits.window
        if self.transport.is_closing() and not self.flow.write_paused:
            self.transport.abort()
        elif self.flow.write_paused:
            left = self._bytes_unsent()
            if self._unsent - left < limits.least:
                self._cut("reader")
            self._unsent = left
        elif self._left > 0:
            self._cut("body")
        elif self._reading is Reading.NOTHING:
            if self._answering:
                self.deadline = inf
            else:
                self._close()
        elif self.flow.read_paused:  # the server is busy with an earlier request
            pass
        elif self._reading is Reading.BODY and self._body_bytes - self._moved >= limits.least:
            self._moved = self._body_bytes
        else:
            metrics.connections_cut.labels(self._reading.value).inc()
            self._refuse(TOO_SLOW if self._unaccounted or self._reading is Reading.BODY else None)

    def dismiss(self, why: str) -> None:
        metrics.connections_cut.labels(why).inc()
        self._refuse(FULL)

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _deadline_between(self) -> float:
        """When a connection that sends nothing is closed: never while it waits for an answer."""
        if self.flow.write_paused:
            return self._edge.now + self._limits.window
        return inf if self._answering else self._edge.now + self._limits.idle

    def _refuse(self, answer: bytes | None) -> None:
        """Close, with this answer if the client can only take it as the one to the request that it is sending."""
        if self.transport.is_closing():
            return
        own = self._answering and self.cycle.scope is self.scope and not self.cycle.response_started
        if answer is not None and not self.pipeline and (own or not self._answering):
            self.transport.write(answer if self.scheme != "https" else through_tls(answer))
        self._close()

    def _close(self) -> None:
        self.deadline = self._edge.now + self._limits.last_words
        self.transport.close()

    def _cut(self, why: str) -> None:
        metrics.connections_cut.labels(why).inc()
        self.transport.abort()

    def cut_if_behind(self, most: int) -> bool:
        """Cut the connection of a client that has not taken so many bytes. Return whether it was cut."""
        behind = self._bytes_unsent() > most
        if behind:
            self._cut("reader")
        return behind

    def _bytes_unsent(self) -> int:
        """Bytes of answers that have not arrived: in the transport, and in the kernel as far as it tells."""
        count: int = self.transport.get_write_buffer_size()
        opened = self.transport.get_extra_info("socket")
        if opened is not None:
            queued = array("i", [0])
            with suppress(OSError):
                ioctl(opened.fileno(), termios.TIOCOUTQ, queued)
            count += queued[0]
        return count
