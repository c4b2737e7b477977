"""Large answers have turns, as large bodies have: a server has few of them in its memory at a time, and tenants share
these turns. The definition of a workflow may have 32 MiB.

A turn ends when the client has taken the answer. A client that does not take it is cut off by the edge limits.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from mainspring.api.web import Receive, Response, Scope, Send, body_message, content_length
from mainspring.domain.errors import TooManyRequests
from mainspring.kernel import metrics
from mainspring.kernel.config import MAX_BODY_BYTES
from mainspring.kernel.ids import TenantId
from mainspring.kernel.tenant_turns import NoTurn, Share, TenantTurns

LARGE_ANSWER = 1024 * 1024  # bytes
_PIECE = 256 * 1024


class LargeAnswers:
    """The turns of one server."""

    def __init__(self, share: int = 1) -> None:
        self.turns = TenantTurns(
            Share(4, MAX_BODY_BYTES).divided(share),
            Share(2, MAX_BODY_BYTES // 2).divided(share),
            most_waiting=-(-32 // share),
            longest_wait=10.0,
        )

    async def take(self, tenant: TenantId, size: int) -> ExitStack:
        """Take a turn, which ends when what is returned is closed. Raises TooManyRequests."""
        try:
            await self.turns.take(tenant, size)
        except NoTurn:
            metrics.refused.inc()
            raise TooManyRequests(
                "too many large answers for this tenant are under way", hint="ask for fewer at a time"
            ) from None
        turn = ExitStack()
        turn.callback(self.turns.give_back, tenant, size)
        return turn


class LargeResponse(Response[Any]):
    """An answer that has a turn. It is sent piece by piece: the server waits before each piece until the client has
    taken the one before."""

    def __init__(self, content: Any, turn: ExitStack, **options: Any) -> None:
        super().__init__(content, **options)
        self._turn = turn

    def encode(self, status: int) -> None:
        try:
            super().encode(status)
        except BaseException:
            self._turn.close()
            raise

    async def send(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._turn:
            await self.begin(send, content_length(self.body))
            if scope["method"] != "HEAD":
                for start in range(0, len(self.body), _PIECE):
                    await send(body_message(self.body[start : start + _PIECE], more=True))
            await send(body_message(b""))
