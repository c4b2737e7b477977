"""Large answers have turns, as large bodies have: a server has few of them in its memory at a time, and tenants share
these turns. The definition of a workflow may have 32 MiB.

A turn ends when the client has taken the answer. A client that does not take it is cut off by the edge limits.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, cast

from litestar import Response
from litestar.response.base import ASGIResponse
from litestar.types import HTTPResponseBodyEvent, Receive, Scope, Send

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
    """An answer that has a turn."""

    def __init__(self, content: Any, turn: ExitStack, **options: Any) -> None:
        super().__init__(content, **options)
        self._turn = turn

    def to_asgi_response(self, *arguments: Any, **options: Any) -> ASGIResponse:
        with self._turn:
            encoded = super().to_asgi_response(*arguments, **options)
            return cast("ASGIResponse", _InPieces(encoded, self._turn.pop_all()))


class _InPieces:
    """Sends a body piece by piece. The server waits before each piece until the client has taken the one before."""

    def __init__(self, encoded: ASGIResponse, turn: ExitStack) -> None:
        self._encoded = encoded
        self._turn = turn

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._turn:
            await self._encoded.start_response(send=send)
            body = memoryview(b"" if self._encoded.is_head_response else self._encoded.body)
            for start in range(0, len(body), _PIECE):
                await send(_body(bytes(body[start : start + _PIECE]), more=True))
            await send(_body(b"", more=False))


def _body(piece: bytes, *, more: bool) -> HTTPResponseBodyEvent:
    return {"type": "http.response.body", "body": piece, "more_body": more}
