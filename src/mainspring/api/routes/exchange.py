"""/v1/exchange: the call through which a worker reports and claims runs. /v1/exchange/gone: its death notice.

The reply of an exchange is encoded here, from structs.
"""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import MediaType, Request, Response, post

from mainspring.api.bodies import DeathNoticeBody, ExchangeBody
from mainspring.api.large_batch import Undecoded
from mainspring.api.large_exchange import read_exchange
from mainspring.api.services import caller_of, services_of
from mainspring.kernel.config import MAX_EXCHANGE_BYTES
from mainspring.wire.death_notice import DeathNotice, DeathReceipt
from mainspring.wire.exchange import ExchangeReply, ExchangeRequest
from mainspring.wire.protocol import PROTOCOL

_encode = msgspec.json.Encoder().encode


@post(
    "/v1/exchange",
    dto=ExchangeBody,
    return_dto=None,
    status_code=200,
    tags=["workers"],
    summary="Exchange: a worker reports outcomes and claims runs (long poll)",
    operation="worker.exchange",
    request_max_body_size=MAX_EXCHANGE_BYTES,
)
async def exchange(request: Request[Any, Any, Any], data: ExchangeRequest) -> Response[ExchangeReply]:
    if isinstance(data, Undecoded):
        data = await read_exchange(data.body)
    reply = await services_of(request).exchanger.exchange(caller_of(request), data)
    reply.protocol = PROTOCOL.number
    return Response(_encode(reply), media_type=MediaType.JSON)  # type: ignore[arg-type]


@post(
    "/v1/exchange/gone",
    dto=DeathNoticeBody,
    return_dto=None,
    status_code=200,
    tags=["workers"],
    summary="Death notice: a worker and everything it started are gone (proved by its secret, without a token)",
    operation="worker.gone",
)
async def gone(request: Request[Any, Any, Any], data: DeathNotice) -> DeathReceipt:
    return await services_of(request).death_notices.take(data)


HANDLERS = [exchange, gone]
