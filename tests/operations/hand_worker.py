"""A worker that a test controls: it sends exchanges over HTTP, and does only what the test calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx
import msgspec

from mainspring.kernel.ids import uuid7
from mainspring.wire.exchange import ExchangeReply, ExchangeRequest, Held, Outcome, RunOrder, WorkerHello
from mainspring.wire.protocol import SECRET_HEADER

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ExchangeReply).decode


class HandWorker:
    """One incarnation. `seq` rises by itself. A test may set it to send a late copy of an exchange."""

    def __init__(
        self, api: httpx.AsyncClient, *, tasks: Sequence[str] = ("noop",), queues: Sequence[str] = ("default",)
    ) -> None:
        self.api = api
        self.worker_id = uuid7()
        self.seq = 0
        self.secret = ""  # a worker without one is bound to its token
        self.card = WorkerHello(
            name="by-hand", queues=list(queues), tasks=list(tasks), slots=100, labels={"zone": "a"}, version="1.2.3"
        )

    async def ask(self, **fields: Any) -> httpx.Response:
        """Send the next exchange and return the response, also if it is an error."""
        self.seq += 1
        request = ExchangeRequest(worker_id=self.worker_id, seq=self.seq, **fields)
        return await self.api.post("/v1/exchange", content=_encode(request), headers=self.headers)

    @property
    def headers(self) -> dict[str, str]:
        proof = {SECRET_HEADER: self.secret} if self.secret else {}
        return {"Content-Type": "application/json", **proof}

    async def exchange(self, **fields: Any) -> ExchangeReply:
        answer = await self.ask(**fields)
        assert answer.status_code == 200, answer.text
        return _decode(answer.content)

    async def hello(self, **fields: Any) -> ExchangeReply:
        return await self.exchange(hello=self.card, **fields)

    async def claim(self, count: int = 1) -> list[RunOrder]:
        """Claim exactly `count` ready runs, with more than one exchange if necessary."""
        orders: list[RunOrder] = []
        while len(orders) < count:
            reply = await self.exchange(free=count - len(orders), hello=None if self.seq else self.card)
            assert reply.runs, f"{len(orders)} of {count} were there"
            orders += reply.runs
        return orders

    async def report(self, *outcomes: Outcome) -> ExchangeReply:
        reply = await self.exchange(outcomes=list(outcomes))
        assert reply.acked == len(outcomes)
        return reply


def outcome(order: RunOrder, status: str = "SUCCESS", **fields: Any) -> Outcome:
    if "result" in fields:
        fields["result"] = msgspec.Raw(_encode(fields["result"]))
    return Outcome(order.run_id, order.fence, status, **fields)  # type: ignore[arg-type]


def held(*orders: RunOrder) -> list[Held]:
    return [Held(order.run_id, order.fence) for order in orders]
