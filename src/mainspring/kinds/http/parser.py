"""Reads one answer of a server that may be hostile. No I/O.

llhttp, in C, reads the bytes (through httptools). The bounds here are those that it does not have. Without them a
server keeps a worker busy with 1xx answers, tiny chunks, headers or trailers that never become an answer: a body of
1 MiB in chunks of one byte takes h11 more than 3 s of CPU. The timeout of the run bounds the time of an answer. See
docs/decisions/0024-our-own-http-client.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import httptools

# Bytes beyond the body: heads, trailers and the framing of chunks.
MOST_HEAD_BYTES = 64 * 1024
MOST_BYTES_PER_CHUNK = 32
MOST_HEADERS = 512
MOST_INTERIM = 16
# Chunks, or pieces that arrive by themselves. Many small ones are normal for a service that streams lines.
MOST_PIECES = 16 * 1024
LEAST_BYTES_PER_PIECE = 16

_NO_BODY = (204, 304)


class BadAnswer(Exception):
    """The answer is not HTTP, or exceeds a bound."""


@dataclass(slots=True)
class Received:
    """An answer. `cut`: the body was longer than the limit."""

    status: int
    headers: dict[str, str]
    body: bytes
    cut: bool


class AnswerParser:
    """Reads the answer to one request with this method, and up to `limit` bytes of its body."""

    def __init__(self, method: str, limit: int) -> None:
        self.answer: Received | None = None  # complete, or cut
        self.reusable = False  # the connection may be used for another request
        self._head_only = method == "HEAD"
        self._limit = limit
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[str, str]] = []
        self._body = bytearray()
        self._received = self._pieces = 0
        self._header_count = self._interim = 0
        self._status = 0  # of the final answer, as soon as its head is complete
        self._until_close = False

    @property
    def started(self) -> bool:
        return self._received > 0

    def feed(self, data: bytes) -> None:
        """Read what has arrived. Raises BadAnswer."""
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._after_error(error)
        if self.answer is None and self._received - len(self._body) > self._most_overhead():
            raise BadAnswer(f"the answer has more than {MOST_HEAD_BYTES} bytes of headers and framing")

    def end(self) -> None:
        """The server has closed the connection. Raises BadAnswer if the answer is not complete."""
        if self._until_close and self.answer is None:
            self._complete(cut=False)
        if self.answer is None:
            raise BadAnswer("the server closed the connection in the middle of its answer")

    def _most_overhead(self) -> int:
        return MOST_HEAD_BYTES + MOST_BYTES_PER_CHUNK * self._pieces

    def _after_error(self, error: Exception) -> None:
        self.reusable = False
        if self.answer is not None:  # what follows a complete answer does not matter: the connection is closed
            return
        # httptools passes on what a callback raised as the context of its own error.
        cause = error.__context__
        if isinstance(cause, BadAnswer):
            raise cause
        raise BadAnswer(f"the answer is not HTTP/1.1: {error}")

    def _complete(self, *, cut: bool) -> None:
        body = bytes(memoryview(self._body)[: self._limit])
        self.answer = Received(self._status, _joined(self._headers), body, cut)

    # -- callbacks of httptools

    def on_message_begin(self) -> None:
        if self.answer is not None:
            self.reusable = False  # bytes after the answer; they must not answer the request of another job

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        if self._header_count > MOST_HEADERS:
            raise BadAnswer(f"the answer has more than {MOST_HEADERS} headers")
        if not self._status:  # trailers are not kept
            self._headers.append((name.decode("latin-1").lower(), value.decode("latin-1").strip()))

    def on_headers_complete(self) -> None:
        if self.answer is not None:
            return
        status = self._parser.get_status_code()
        if status < 200:
            self._interim += 1
            self._headers.clear()
            if status == 101 or self._interim > MOST_INTERIM:
                what = (
                    "switches to another protocol" if status == 101 else f"sends more than {MOST_INTERIM} 1xx answers"
                )
                raise BadAnswer(f"the server {what}")
            return
        self._status = status
        names = {name for name, _ in self._headers}
        chunked = any(
            name == "transfer-encoding" and value.lower().endswith("chunked") for name, value in self._headers
        )
        self._until_close = not (chunked or "content-length" in names or status in _NO_BODY)
        if self._head_only:
            self.reusable = self._parser.should_keep_alive()
            self._complete(cut=False)

    def on_body(self, body: bytes) -> None:
        if self.answer is not None:
            self.reusable = False
            return
        self._pieces += 1
        self._body += body
        if self._pieces > MOST_PIECES + len(self._body) // LEAST_BYTES_PER_PIECE:
            raise BadAnswer(f"the body arrives in more than {MOST_PIECES} pieces of a few bytes")
        if len(self._body) > self._limit:
            self._complete(cut=True)

    def on_message_complete(self) -> None:
        if self._status and self.answer is None:
            self.reusable = self._parser.should_keep_alive()
            self._complete(cut=False)


def _joined(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Headers by their name in lower case; repeated headers are joined with commas."""
    values: dict[str, list[str]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return {name: ", ".join(found) for name, found in values.items()}
