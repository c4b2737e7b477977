"""/v1/insights: figures about the whole."""

from __future__ import annotations

from typing import Any

from litestar import Request, get

from mainspring.api.services import caller_of, services_of
from mainspring.wire.insights import Overview


@get(
    "/v1/insights/overview",
    summary="See how the system is doing: throughput, lag, queues, workers and problems",
    tags=["insights"],
    operation="insights.overview",
)
async def get_overview(request: Request[Any, Any, Any]) -> Overview:
    return await services_of(request).overview_reader.overview(caller_of(request))
