"""/v1/insights: figures about the whole."""

from __future__ import annotations

from typing import Any

from litestar import Request, get

from mainspring.api.answers import LISTS
from mainspring.api.services import caller_of, services_of
from mainspring.wire.insights import Overview


@get(
    "/v1/insights/overview",
    summary="See how the system is doing: throughput, lag, queues, workers and problems",
    operation="insights.overview",
    problems=LISTS,
)
async def get_overview(request: Request[Any, Any, Any]) -> Overview:
    """One screen of figures, and in sentences what is wrong, if anything is."""
    return await services_of(request).overview_reader.overview(caller_of(request))
