"""/v1/exchange: the call through which a worker reports and claims runs. /v1/exchange/gone: its death notice.

The reply of an exchange is encoded here, from structs.
"""

from __future__ import annotations

import msgspec

from mainspring.api.answers import SPEAKS_FOR_A_WORKER, Answer
from mainspring.api.auth import proof_of
from mainspring.api.bodies import decode_exchange
from mainspring.api.handlers import post
from mainspring.api.large_batch import Undecoded
from mainspring.api.large_bodies import turn_of
from mainspring.api.large_exchange import read_exchange
from mainspring.api.openapi import request_examples as examples
from mainspring.api.reach import Reach
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import Request, Response
from mainspring.kernel.config import MAX_EXCHANGE_BYTES
from mainspring.operations.access.permissions import PUBLIC, WORKERS
from mainspring.wire.death_notice import DeathNotice, DeathReceipt
from mainspring.wire.exchange import ExchangeReply, ExchangeRequest
from mainspring.wire.protocol import PROTOCOL

_encode = msgspec.json.Encoder().encode


@post(
    "/v1/exchange",
    decode=decode_exchange,
    status_code=200,
    summary="Exchange: a worker reports outcomes and claims runs (long poll)",
    operation="worker.exchange",
    reach=Reach.FILTERED,
    roles=WORKERS,
    answers={200: Answer("What is acknowledged, and which runs to start and to stop.")},
    problems=(*SPEAKS_FOR_A_WORKER, "conflict", "fenced", "too_many_workers", "unavailable", "unstorable_value"),
    examples=examples.EXCHANGES,
    request_max_body_size=MAX_EXCHANGE_BYTES,
)
async def exchange_runs(request: Request, data: ExchangeRequest) -> Response[ExchangeReply]:
    """For worker programs; docs/exchange.md describes the protocol. The answer comes within `wait_ms`, or as soon as
    there is something to run or to stop. It can be repeated safely."""
    if isinstance(data, Undecoded):
        data = await read_exchange(data.body)
    exchanger, turn = services_of(request).exchanger, turn_of(request.scope)
    reply = await exchanger.exchange(caller_of(request), data, None if turn is None else turn.give_back)
    reply.protocol = PROTOCOL.number
    return Response(_encode(reply))


@post(
    "/v1/exchange/gone",
    status_code=200,
    summary="Death notice: a worker and everything that it started are gone",
    operation="worker.gone",
    roles=PUBLIC,
    problems=("wrong_secret",),
    examples=examples.DEATH_NOTICES,
)
async def report_death(request: Request, data: DeathNotice) -> DeathReceipt:
    """Its runs are rescued at once. The secret of the incarnation proves it; a token is not needed. Without the proof
    the body is not read."""
    return await services_of(request).death_notices.take(data, proof_of(request.scope))


HANDLERS = [exchange_runs, report_death]
