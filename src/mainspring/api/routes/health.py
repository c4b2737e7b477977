"""/healthz (the process is up) and /readyz (it makes progress). These two routes need no token."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, get

from mainspring.api.services import services_of
from mainspring.kernel.version import VERSION
from mainspring.wire.runs import Health, Readiness


@get("/healthz", summary="Liveness: the process is up", tags=["health"], operation="health.live")
async def healthz() -> Health:
    return Health("ok", VERSION)


@get("/readyz", summary="Readiness: the process makes progress", tags=["health"], operation="health.ready")
async def readyz(request: Request[Any, Any, Any]) -> Response[Readiness]:
    readiness = await services_of(request).readiness.check()
    return Response(readiness, status_code=200 if readiness.status == "ready" else 503)
