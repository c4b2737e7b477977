"""Answers of the API as gzip, for those who accept it: figures and lists are mostly the names of fields.

Only reads are compressed, so submissions and exchanges cost nothing more. An answer with a secret beside text of others
is not: its length would tell about the secret. Streams have no end, and a very large answer would stop the event loop.
"""

from __future__ import annotations

import gzip
from typing import Any

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

_LEAST = 1000  # bytes
_MOST = 256 * 1024  # 3 ms
_LEVEL = 1
_SECRET = ("/v1/session", "/v1/tokens")  # the page of sessions has the value against forged requests
_TEXTS = (b"application/json", b"application/problem+json")


class Compression:
    """An ASGI app around that of the API."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP or not _is_read(scope) or not takes_gzip(scope):
            await self._app(scope, receive, send)
            return
        begun: Any = None

        async def pass_on(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start" and _is_text(message["headers"]):
                begun = message
                return
            if begun is not None and message["type"] == "http.response.body":
                start, begun = begun, None
                if not message.get("more_body", False) and _LEAST <= len(message["body"]) <= _MOST:
                    body = gzip.compress(message["body"], _LEVEL, mtime=0)
                    message = {"type": "http.response.body", "body": body, "more_body": False}
                    start = {**start, "headers": _compressed(start["headers"], len(body))}
                await send(start)
            await send(message)

        await self._app(scope, receive, pass_on)


def _is_read(scope: Any) -> bool:
    return scope["method"] == "GET" and not scope["path"].startswith(_SECRET)


def takes_gzip(scope: Any) -> bool:
    wanted = b",".join(value for name, value in scope["headers"] if name == b"accept-encoding").decode("latin-1")
    return any(part.partition(";")[0].strip() == "gzip" and "q=0" not in part for part in wanted.lower().split(","))


def _is_text(headers: Any) -> bool:
    given = {name.lower(): value for name, value in headers}
    return given.get(b"content-type", b"").startswith(_TEXTS) and b"content-encoding" not in given


def _compressed(headers: Any, length: int) -> list[tuple[bytes, bytes]]:
    kept = [(name, value) for name, value in headers if name.lower() != b"content-length"]
    return [
        *kept, (b"content-encoding", b"gzip"), (b"vary", b"accept-encoding"), (b"content-length", str(length).encode()),
    ]  # fmt: skip
