"""What routes use of HTTP: requests, parameters, and answers with a struct, with bytes or with a stream.

An answer is complete before it is sent, so what stands in front of a route can change it: compress it, leave out its
body, add a header. Only a stream is made while it is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import aclosing, suppress
from enum import StrEnum
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qsl

import msgspec

from mainspring.api.parameters import HeaderParameter, QueryParameter
from mainspring.api.routing import Router

__all__ = ["HeaderParameter", "MediaType", "QueryParameter", "Request", "Response", "Router", "Stream"]

T = TypeVar("T")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]

NO_CONTENT = 204
_encode = msgspec.json.Encoder().encode


class MediaType(StrEnum):
    JSON = "application/json"
    TEXT = "text/plain"


class Request:
    """What a handler may ask of its request. `app` is the application that routes it."""

    __slots__ = ("app", "scope")

    def __init__(self, scope: Scope) -> None:
        self.app: Any = scope["app"]
        self.scope = scope

    @property
    def method(self) -> str:
        method: str = self.scope["method"]
        return method

    @property
    def path(self) -> str:
        path: str = self.scope["path"]
        return path

    def query_pairs(self) -> list[tuple[str, str]]:
        """The parameters in the order in which they were given."""
        return parse_qsl(self.scope["query_string"].decode("latin-1"), keep_blank_values=True)


class Response(Generic[T]):
    """`status_code`: None means that of the handler. `cookies`: values of Set-Cookie. Bytes are sent as they are, and
    other content as JSON."""

    def __init__(
        self,
        content: T | bytes,
        *,
        status_code: int | None = None,
        headers: Mapping[str, str] | None = None,
        cookies: Iterable[str] = (),
        media_type: str = MediaType.JSON,
    ) -> None:
        self.content = content
        self.status_code = status_code or 0
        self.headers = dict(headers or {})
        self.media_type = media_type
        self.cookies = tuple(cookies)
        self.body = b""

    def encode(self, status: int) -> None:
        """Make the body. `status`: if it has none of its own. Raises if the content has no form in JSON."""
        self.status_code = self.status_code or status
        self.body = self.content if isinstance(self.content, bytes) else _encode(self.content)

    async def send(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send what `encode` has made. The answer to HEAD has the headers of the answer to GET, and no body."""
        await self.begin(send, content_length(self.body))
        await send(body_message(b"" if scope["method"] == "HEAD" else self.body))

    async def begin(self, send: Send, *more: Header) -> None:
        kind = f"{self.media_type}; charset=utf-8" if self.media_type.startswith("text/") else self.media_type
        given = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in self.headers.items()]
        cookies = [(b"set-cookie", cookie.encode("latin-1")) for cookie in self.cookies]
        about_body = [] if self.status_code == NO_CONTENT else [(b"content-type", kind.encode()), *more]
        headers = [*about_body, *given, *cookies]
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})


class Stream(Response[Any]):
    """An answer of unknown length. It ends with `pieces`, or when the client has gone."""

    def __init__(self, pieces: AsyncGenerator[bytes, None], **options: Any) -> None:
        super().__init__(b"", **options)
        self._pieces = pieces

    async def send(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.begin(send)
        if scope["method"] != "HEAD":
            await self._send_until_gone(receive, send)
        await send(body_message(b""))

    async def _send_until_gone(self, receive: Receive, send: Send) -> None:
        try:
            async with aclosing(self._pieces), asyncio.timeout(None) as here:  # ended when the client has gone
                watching = asyncio.create_task(_watch(receive, here))
                try:
                    async for piece in self._pieces:
                        await send(body_message(piece, more=True))
                finally:
                    watching.cancel()
        except TimeoutError:
            if not here.expired():
                raise


def content_length(body: bytes) -> Header:
    return b"content-length", b"%d" % len(body)


def body_message(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}


async def _watch(receive: Receive, limit: asyncio.Timeout) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    with suppress(RuntimeError):  # it has ended by itself
        limit.reschedule(asyncio.get_running_loop().time())
