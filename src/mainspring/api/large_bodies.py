"""Large bodies have turns: a server reads and works on few of them at a time, and tenants share these turns.

A request that waits is not read: its body stays with the client, except for the 64 KiB that the connection buffers. So
a hundred bodies of 64 MiB at once take no more memory than two. Small bodies never wait.

A client that has a turn and sends slowly keeps others waiting. So while others wait, a body has to move; otherwise its
request is refused, and the next one begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

from mainspring.api.handlers import RouteHandler
from mainspring.api.web import Message, Receive, Scope
from mainspring.domain.errors import BodyTooSlow, TooManyRequests
from mainspring.kernel import metrics
from mainspring.kernel.config import LARGE_BYTES, MAX_BODY_BYTES, MAX_EXCHANGE_BYTES
from mainspring.kernel.ids import TenantId
from mainspring.kernel.memory import give_back_memory
from mainspring.kernel.tenant_turns import NoTurn, Share, TenantTurns

_LEAVES_HOLES = 1024 * 1024  # bytes of a body after which memory is given back
_TRIM_AFTER = 2.0  # seconds
_HEAD_START = 5.0  # seconds in which a body that others wait for need not move
_RATE = 128 * 1024  # bytes a second after that
_OF_WORKERS = "worker."
_BODY = "large_body"
_LOOK = 1.0  # seconds between two looks, while a request waits


def may_be_large(headers: dict[bytes, bytes]) -> bool:
    length = headers.get(b"content-length")
    return b"transfer-encoding" in headers if length is None else len(length) > 4 and int(length) > LARGE_BYTES


def announced_length(scope: Scope) -> int | None:
    return next((int(value) for name, value in scope["headers"] if name == b"content-length"), None)


def turn_of(scope: Any) -> LargeBody | None:
    """The body of this request, if it may be large. Its turn can be given back before the request ends."""
    body: LargeBody | None = scope.get(_BODY)
    return body


class LargeBodies:
    """The turns of one server. Workers have turns of their own: their exchanges must not wait for clients."""

    def __init__(self, share: int = 1) -> None:
        self.clients = BodyLane(
            TenantTurns(
                Share(3, 2 * MAX_BODY_BYTES).divided(share),
                Share(2, MAX_BODY_BYTES).divided(share),
                most_waiting=-(-32 // share),
                longest_wait=10.0,
            )
        )
        self.workers = BodyLane(
            TenantTurns(
                Share(16, 8 * MAX_EXCHANGE_BYTES).divided(share),
                Share(8, 4 * MAX_EXCHANGE_BYTES).divided(share),
                most_waiting=-(-256 // share),
                longest_wait=10.0,
            )
        )

    @asynccontextmanager
    async def turn(self, scope: Scope, receive: Receive) -> AsyncIterator[Receive]:
        """As a context: the `receive` of a body that may be large. Raises TooManyRequests or BodyTooSlow."""
        handler: RouteHandler = scope["handler"]
        most, length = handler.request_max_body_size, announced_length(scope)
        if most <= LARGE_BYTES or (length is not None and length > most):
            yield receive  # it is refused without being read
            return
        lane = self.workers if handler.operation.startswith(_OF_WORKERS) else self.clients
        body = scope[_BODY] = LargeBody(lane, scope["caller"].tenant, most if length is None else length, receive)
        try:
            if length is not None:
                await body.take_turn()
            yield body.receive
        finally:
            body.give_back()
            del scope[_BODY]


class BodyLane:
    """Those who share turns, and how fast their bodies arrive."""

    def __init__(self, turns: TenantTurns) -> None:
        self.turns = turns
        self._arriving: set[LargeBody] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._trim: asyncio.TimerHandle | None = None

    async def take(self, body: LargeBody) -> None:
        if self._timer is None:
            self._look_later()
        try:
            await self.turns.take(body.tenant, body.size)
        except NoTurn:
            metrics.refused.inc()
            raise TooManyRequests(
                "too many large requests of this tenant are under way", hint="send fewer at a time, or smaller ones"
            ) from None
        self._arriving.add(body)

    def arrived(self, body: LargeBody) -> None:
        self._arriving.discard(body)

    def give_back(self, body: LargeBody) -> None:
        self._arriving.discard(body)
        self.turns.give_back(body.tenant, body.size)
        if body.size > _LEAVES_HOLES and self._trim is None:
            self._trim_later()

    def _trim_later(self) -> None:
        """What the last large request has used is free a moment after its answer."""
        self._trim = asyncio.get_running_loop().call_later(_TRIM_AFTER, self._trim_now)

    def _trim_now(self) -> None:
        self._trim = None
        if self.turns.held:
            self._trim_later()
        else:
            asyncio.get_running_loop().run_in_executor(None, give_back_memory)

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_LOOK, self._look)

    def _look(self) -> None:
        """Cut the bodies that keep others waiting."""
        self._timer = None
        if not self.turns.waiting:
            return
        now = monotonic()
        for body in list(self._arriving):
            if body.received < _RATE * (now - body.began - _HEAD_START):
                body.cut()
        self._look_later()


class LargeBody:
    """The body of one request. A body that comes in chunks takes its turn when it has become large."""

    def __init__(self, lane: BodyLane, tenant: TenantId, size: int, receive: Receive) -> None:
        self.tenant = tenant
        self.size = size
        self.received = 0
        self.began = 0.0
        self._lane = lane
        self._receive = receive
        self._has_turn = False
        self._limit: asyncio.Timeout | None = None
        self._is_cut = False

    async def take_turn(self) -> None:
        await self._lane.take(self)
        self._has_turn = True
        self.began = monotonic()

    def give_back(self) -> None:
        if self._has_turn:
            self._has_turn = False
            self._lane.give_back(self)

    async def receive(self) -> Message:
        if not self._has_turn and self.received > LARGE_BYTES:
            await self.take_turn()
        message = await self._next()
        self.received += len(message.get("body", b""))
        if not message.get("more_body", False):
            self._lane.arrived(self)
        return message

    async def _next(self) -> Message:
        if self._is_cut:
            raise _too_slow()
        self._limit = asyncio.timeout(None)
        try:
            async with self._limit:
                return await self._receive()
        except TimeoutError:
            if self._is_cut:
                raise _too_slow() from None
            raise
        finally:
            self._limit = None

    def cut(self) -> None:
        """Others wait, and the rest of it does not come. A second call changes nothing."""
        if self._is_cut:
            return
        self._is_cut = True
        if self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time())


def _too_slow() -> BodyTooSlow:
    return BodyTooSlow(
        "the body came too slowly, while others waited", expected=f"at least {_RATE // 1024} KiB/s",
        hint="send it again, in smaller parts",
    )  # fmt: skip
