"""While PostgreSQL is unavailable, new and pending requests get 503 with Retry-After within two seconds."""

from __future__ import annotations

import asyncio

from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

from mainspring.api.handlers import is_public
from mainspring.domain.errors import Unavailable
from mainspring.store.pulse import Pulse

_STREAMED = ("/logs", "/v1/stream")


class OpenRequests:
    """The pending requests. All of them end when PostgreSQL becomes unavailable."""

    def __init__(self, pulse: Pulse) -> None:
        self._pulse = pulse
        self._limits: set[asyncio.Timeout] = set()
        pulse.on_away(self._end_all)

    @property
    def store_down(self) -> bool:
        return self._pulse.away

    def add(self, limit: asyncio.Timeout) -> None:
        self._limits.add(limit)

    def remove(self, limit: asyncio.Timeout) -> None:
        self._limits.discard(limit)

    def _end_all(self) -> None:
        now = asyncio.get_running_loop().time()
        for limit in self._limits:
            limit.reschedule(now)
        self._limits.clear()


class StoreOutageGuard:
    """ASGI middleware: wraps each request in a timeout that is only set when PostgreSQL becomes unavailable."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP or _is_open(scope):
            await self._app(scope, receive, send)
            return
        requests: OpenRequests = scope["app"].state.open_requests
        if requests.store_down:
            raise store_down()
        if scope["path"].endswith(_STREAMED) and scope["method"] == "GET":
            await self._app(scope, receive, send)  # it only reads, so it survives an outage
            return
        limit = asyncio.timeout(None)
        try:
            async with limit:
                requests.add(limit)
                try:
                    await self._app(scope, receive, send)
                finally:
                    requests.remove(limit)
        except TimeoutError:
            if limit.expired():
                raise store_down() from None
            raise


def _is_open(scope: HTTPScope) -> bool:
    return is_public(scope["route_handler"])


def store_down() -> Unavailable:
    """The request may or may not have been carried out. With an idempotency key it can be repeated safely."""
    return Unavailable("the database is unavailable", code="store_down", hint="try again shortly")
