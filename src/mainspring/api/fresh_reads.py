"""Which requests may be answered from a standby: those that only read, and not what their caller has just changed.

Each server remembers when a token or a session has last changed something. Behind a load balancer the next request may
go to another server, so a browser also gets a cookie for as long as a standby may be behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPSendMessage, Message, Receive, Scope, Send

from mainspring.store.replica import Replica, reads_since

COOKIE = b"mainspring_changed"
_SAFE = frozenset(("GET", "HEAD"))
_MOST_CALLERS = 10_000
_SLACK = 2.0  # seconds that the cookie lives longer than a standby may be behind


class FreshReads:
    """An ASGI app around the server's."""

    def __init__(self, app: ASGIApp, replica: Replica, now: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._now = now
        self._changed: dict[int, float] = {}
        self._before = 0.0  # when those that were forgotten had changed something at the latest
        seconds = round(replica.max_staleness + _SLACK)
        self._cookie = b"%b=1; Max-Age=%d; Path=/; HttpOnly; SameSite=Strict" % (COOKIE, seconds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        headers = {name: value for name, value in scope["headers"] if name in (b"authorization", b"cookie")}
        cookie = headers.get(b"cookie", b"")
        caller = hash(headers.get(b"authorization") or cookie.replace(COOKIE + b"=1", b"").strip(b"; "))
        if scope["method"] in _SAFE:
            reads_since.set(None if COOKIE in cookie else self._changed.get(caller, self._before))
            await self._app(scope, receive, send)
            return

        reads_since.set(None)

        async def send_and_note(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._note(caller)  # the change is committed
                if cookie:
                    _add_header(message, self._cookie)
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        finally:
            self._note(caller)

    def _note(self, caller: int) -> None:
        if len(self._changed) >= _MOST_CALLERS:
            self._changed.clear()
            self._before = self._now()
        self._changed[caller] = self._now()


def _add_header(message: HTTPSendMessage, cookie: bytes) -> None:
    if message["type"] == "http.response.start":
        message["headers"] = [*message["headers"], (b"set-cookie", cookie)]
