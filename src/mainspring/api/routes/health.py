"""/healthz (the process is up) and /readyz (it makes progress). These two routes need no token."""

from __future__ import annotations

from mainspring.api.answers import Answer
from mainspring.api.handlers import get
from mainspring.api.services import services_of
from mainspring.api.web import Request, Response
from mainspring.kernel.version import VERSION
from mainspring.operations.access.permissions import PUBLIC
from mainspring.wire.runs import Health, Readiness


@get("/healthz", summary="Liveness: the process is up", operation="health.live", roles=PUBLIC)
async def check_health() -> Health:
    """Says nothing about the database."""
    return Health("ok", VERSION)


@get(
    "/readyz", summary="Readiness: the process makes progress", operation="health.ready", roles=PUBLIC,
    answers={200: Answer("It is ready."), 503: Answer("It is not ready: `checks` says why.")},
)  # fmt: skip
async def check_readiness(request: Request) -> Response[Readiness]:
    """The database answers, the leases are renewed, and no fire is overdue by more than 10 seconds."""
    readiness = await services_of(request).readiness.check()
    return Response(readiness, status_code=200 if readiness.status == "ready" else 503)
