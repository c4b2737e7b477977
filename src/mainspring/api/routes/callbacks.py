"""/v1/callbacks: the one-time addresses at which services that steps have called answer."""

from __future__ import annotations

from typing import Any

from mainspring.api.answers import Answer
from mainspring.api.handlers import post
from mainspring.api.openapi import request_examples as examples
from mainspring.api.reach import Reach
from mainspring.api.services import services_of
from mainspring.api.web import Request
from mainspring.kernel.config import MAX_RESULT_BYTES
from mainspring.operations.access.permissions import PUBLIC
from mainspring.wire.callbacks import CallbackTaken

Http = Request


@post(
    "/v1/callbacks/{token:str}", status_code=200, summary="Answer a step that waits for a callback",
    operation="callbacks.take", roles=PUBLIC, reach=Reach.NONE, request_max_body_size=MAX_RESULT_BYTES, decode=bytes,
    problems=("no_callback", "callback_over", "invalid_input", "payload_too_large", "too_many_requests"),
    answers={200: Answer("The step ends with the body as its result")}, body=Any, examples=examples.CALLBACKS,
)  # fmt: skip
async def accept_callback(request: Http, token: str, data: bytes | None = None) -> CallbackTaken:
    """The address is that of the header `Mainspring-Callback-Url`. It needs no token, and counts once. The body is JSON
    of at most 64 KiB, or empty."""
    services = services_of(request)
    services.callback_rates.count_address((request.scope.get("client") or (None,))[0])
    attempt = services.callbacks.attempt(token)
    return await services.callbacks.take(attempt, data or b"")


HANDLERS = [accept_callback]
