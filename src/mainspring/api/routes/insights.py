"""/v1/insights: figures about the whole."""

from __future__ import annotations

from typing import Annotated

from mainspring.api.answers import LISTS
from mainspring.api.handlers import get
from mainspring.api.reach import Reach
from mainspring.api.routes.paging import DEFAULT_PAGE, PageLimit, link_header, time_filter
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import QueryParameter, Request, Response
from mainspring.domain.scaling import LEAST_WITHIN, MOST_WITHIN, WITHIN
from mainspring.operations.access.permissions import METRICS_READERS, READERS
from mainspring.operations.read.upcoming import UpcomingQuery
from mainspring.wire.formats import Moment, TimeZone
from mainspring.wire.insights import FailureGroupView, Failures, JobOutcomeList, Overview, Scaling, WindowWord
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
    request: Request,
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
    request: Request,
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
async def get_failure_group(request: Request, fingerprint: str, since: Moment | None = None) -> FailureGroupView:
    """The failures that have this fingerprint in the list of failures: how many, when, and what they hit. Without
    `since` it covers the last seven days."""
    moment = time_filter(since, "since")
    return await services_of(request).failure_reader.group(caller_of(request), fingerprint, moment)


@get(
    "/v1/insights/jobs",
    summary="See what became of the newest runs of several jobs",
    operation="insights.jobs",
    roles=READERS,
    problems=("invalid_parameter",),
)
async def get_job_outcomes(request: Request, job: list[str]) -> JobOutcomeList:
    """For each of up to 100 jobs: the last ten runs of the last seven days that have ended, and how many of its newest
    100 succeeded and failed. Jobs without such runs are left out."""
    return await services_of(request).job_outcomes.outcomes(caller_of(request), job)


@get(
    "/v1/insights/upcoming",
    summary="List the next fires of all jobs, in order of time",
    operation="insights.upcoming",
    roles=READERS,
    problems=(*LISTS, "invalid_time", "missing_timezone"),
)
async def list_next_fires(
    request: Request,
    from_: From = None,
    to: Moment | None = None,
    cursor: str | None = None,
    limit: PageLimit = DEFAULT_PAGE,
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
    request: Request,
    range: RangeWord = "day",
    from_: From = None,
    timezone: TimeZone = "UTC",
) -> HeatMap:
    """The fires of the next day in cells of five minutes, or of the next week in cells of an hour, from this minute on;
    and the minutes with the most, with the jobs and what would spread them."""
    return await services_of(request).heat_map_reader.heat_map(caller_of(request), range, from_, timezone)


@get(
    "/v1/insights/scaling",
    summary="See how many slots of workers each queue wants",
    operation="insights.scaling",
    reach=Reach.QUEUE,
    roles=METRICS_READERS,
    problems=LISTS,
)
async def get_scaling(
    request: Request,
    queue: Name = None,
    within: Annotated[float, QueryParameter(ge=LEAST_WITHIN, le=MOST_WITHIN)] = WITHIN,
) -> Scaling:
    """For autoscalers of workers, such as KEDA: for each queue how many seconds it is behind, and how many slots keep
    up and start what waits `within` so many seconds. It follows from what waits and runs, from the rate and the
    durations of what ended, and from the free slots of live workers. With `queue` of that queue alone,
    which may not exist yet."""
    return await services_of(request).scaling_reader.scaling(caller_of(request), queue, within)


HANDLERS = [get_overview, get_failures, get_failure_group, get_job_outcomes, list_next_fires, get_heat_map, get_scaling]
