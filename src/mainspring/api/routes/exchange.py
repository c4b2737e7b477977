"""/v1/exchange: the call through which a worker reports and claims runs. The reply is encoded here, from structs."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import MediaType, Request, Response, post

from mainspring.api.bodies import ExchangeBody
from mainspring.api.services import caller_of, services_of
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
)
async def exchange(request: Request[Any, Any, Any], data: ExchangeRequest) -> Response[ExchangeReply]:
    reply = await services_of(request).exchanger.exchange(caller_of(request), data)
    reply.protocol = PROTOCOL.number
    return Response(_encode(reply), media_type=MediaType.JSON)  # type: ignore[arg-type]
