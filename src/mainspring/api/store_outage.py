"""While PostgreSQL is away: 503 with Retry-After within two seconds, for requests that come and for those that hang."""

from __future__ import annotations

import asyncio

from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

from mainspring.api.operation_names import operations_of
from mainspring.domain.errors import Unavailable
from mainspring.operations.access.permissions import is_public
from mainspring.store.pulse import Pulse

_STREAMED = "/logs"


class OpenRequests:
    """The requests under way, so that they can be ended together."""

    def __init__(self, pulse: Pulse) -> None:
        self._pulse = pulse
        self._limits: set[asyncio.Timeout] = set()
        pulse.on_away(self._give_up)

    @property
    def hopeless(self) -> bool:
        return self._pulse.away

    def add(self, limit: asyncio.Timeout) -> None:
        self._limits.add(limit)

    def remove(self, limit: asyncio.Timeout) -> None:
        self._limits.discard(limit)

    def _give_up(self) -> None:
        now = asyncio.get_running_loop().time()
        for limit in self._limits:
            limit.reschedule(now)
        self._limits.clear()


class StoreOutageGuard:
    """ASGI middleware: a limit around each request that costs nothing until PostgreSQL goes away."""

    def __init__(self, app: ASGIApp, requests: OpenRequests) -> None:
        self._app = app
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP or _is_open(scope):
            await self._app(scope, receive, send)
            return
        if self._requests.hopeless:
            raise store_down()
        if scope["path"].endswith(_STREAMED) and scope["method"] == "GET":
            await self._app(scope, receive, send)  # it outlives an outage: it is not in the middle of a change
            return
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._requests.add(limit)
                try:
                    await self._app(scope, receive, send)
                finally:
                    self._requests.remove(limit)
        except TimeoutError:
            if limit.expired():
                raise store_down() from None
            raise


def _is_open(scope: HTTPScope) -> bool:
    return is_public(operations_of(scope["route_handler"], scope["path"]))


def store_down() -> Unavailable:
    """What was under way may or may not have been carried out; an idempotency key makes it safe to repeat."""
    return Unavailable("the database is away", code="store_down", hint="try again shortly")
