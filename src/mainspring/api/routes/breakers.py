"""/v1/breakers."""

from __future__ import annotations

from mainspring.api.handlers import get, post
from mainspring.api.routes.versions import IfTag, tag_of
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import Request
from mainspring.operations.access.permissions import OPERATORS, READERS
from mainspring.wire.jobs import Nothing
from mainspring.wire.limits import BreakerList, BreakerView

Http = Request


@get("/v1/breakers", summary="List circuit breakers", operation="breakers.list", roles=READERS)
async def list_breakers(request: Http) -> BreakerList:
    """The circuit breakers of jobs and tasks that have had runs lately. Open ones come first."""
    return await services_of(request).breakers.breakers(caller_of(request))


@post(
    "/v1/breakers/{breaker_id:str}/reset", verb="reset", status_code=200,
    summary="Reset a circuit breaker", operation="breakers.reset", roles=OPERATORS, problems=("version_mismatch",),
)  # fmt: skip
async def reset_breaker(
    request: Http, breaker_id: str, data: Nothing | None = None, if_tag: IfTag = None
) -> BreakerView:
    """Reset a circuit breaker: it closes and forgets its failures, and the runs behind it may start."""
    return await services_of(request).breakers.reset(caller_of(request), breaker_id, tag_of(if_tag))


HANDLERS = [list_breakers, reset_breaker]
