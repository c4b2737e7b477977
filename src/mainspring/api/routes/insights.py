"""/v1/insights: figures about the whole."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Request, Response
from litestar.params import QueryParameter

from mainspring.api.answers import LISTS
from mainspring.api.handlers import get
from mainspring.api.routes.paging import DEFAULT_PAGE, MAX_PAGE, link_header, time_filter
from mainspring.api.services import caller_of, services_of
from mainspring.operations.access.permissions import READERS
from mainspring.operations.read.upcoming import UpcomingQuery
from mainspring.wire.formats import Moment, TimeZone
from mainspring.wire.insights import FailureGroupView, Failures, Overview, WindowWord
from mainspring.wire.preview import HeatMap, RangeWord, UpcomingFires

Name = Annotated[str | None, QueryParameter(min_length=1, max_length=1000)]
From = Annotated[Moment | None, QueryParameter(name="from")]


@get(
    "/v1/insights/overview",
    summary="See how the system is doing: throughput, lag, queues, workers and problems",
    operation="insights.overview",
    roles=READERS,
    problems=LISTS,
)
async def get_overview(
    request: Request[Any, Any, Any],
    w: WindowWord | None = None,
    queue: Name = None,
    task: Name = None,
) -> Overview:
    """One screen of figures, and in sentences what is wrong, if anything is. With `w` also what ended within that time,
    as totals and as series of at most 360 steps, of all or of a queue or a task."""
    return await services_of(request).overview_reader.overview(caller_of(request), w, task, queue)


@get(
    "/v1/insights/failures",
    summary="See what fails: failures grouped by error",
    operation="insights.failures",
    roles=READERS,
    problems=(*LISTS, "invalid_time", "missing_timezone"),
)
async def get_failures(
    request: Request[Any, Any, Any],
    since: Moment | None = None,
    task: Name = None,
    queue: Name = None,
    job: Name = None,
) -> Failures:
    """Attempts that failed are one group if task, error class and first line are the same, without numbers, ids, quoted
    words and paths. Without `since` it covers the last day. With `job` those of its newest 3,000 runs."""
    moment = time_filter(since, "since")
    return await services_of(request).failure_reader.failures(caller_of(request), moment, task, queue, job)


@get(
    "/v1/insights/failures/{fingerprint:str}",
    summary="See one group of failures",
    operation="insights.failure",
    roles=READERS,
    problems=("not_found", "invalid_parameter", "invalid_time", "missing_timezone"),
)
async def get_failure_group(
    request: Request[Any, Any, Any], fingerprint: str, since: Moment | None = None
) -> FailureGroupView:
    """The failures that have this fingerprint in the list of failures: how many, when, and what they hit. Without
    `since` it covers the last seven days."""
    moment = time_filter(since, "since")
    return await services_of(request).failure_reader.group(caller_of(request), fingerprint, moment)


@get(
    "/v1/insights/upcoming",
    summary="List the next fires of all jobs, in order of time",
    operation="insights.upcoming",
    roles=READERS,
    problems=(*LISTS, "invalid_time", "missing_timezone"),
)
async def list_next_fires(
    request: Request[Any, Any, Any],
    from_: From = None,
    to: Moment | None = None,
    cursor: str | None = None,
    limit: Annotated[int, QueryParameter(ge=1, le=MAX_PAGE)] = DEFAULT_PAGE,
) -> Response[UpcomingFires]:
    """The list has the jobs of the tenant that are not paused. A job occurs as often as it fires. Without `to`, the
    list reaches up to a year ahead. For a tenant with very many jobs the list ends where it could become incomplete;
    `until` says where."""
    query = UpcomingQuery(time_filter(from_, "from"), time_filter(to, "to"), cursor, limit)
    page = await services_of(request).upcoming_reader.upcoming(caller_of(request), query)
    return Response(page, headers=link_header(request, page.next))


@get(
    "/v1/insights/heatmap",
    summary="See when jobs fire, and where they pile up",
    operation="insights.heatmap",
    roles=READERS,
    problems=(*LISTS, "invalid_time", "missing_timezone", "unknown_timezone", "forecast_not_ready"),
)
async def get_heat_map(
    request: Request[Any, Any, Any],
    range: RangeWord = "day",
    from_: From = None,
    timezone: TimeZone = "UTC",
) -> HeatMap:
    """The fires of the next day in cells of five minutes, or of the next week in cells of an hour, from this minute on;
    and the minutes with the most, with the jobs and what would spread them."""
    return await services_of(request).heat_map_reader.heat_map(caller_of(request), range, from_, timezone)


HANDLERS = [get_overview, get_failures, get_failure_group, list_next_fires, get_heat_map]
