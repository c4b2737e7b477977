"""/v1/jobs, also served as /jobs."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Request, Response, Router, delete, get, patch, post, put
from litestar.params import HeaderParameter, QueryParameter

from mainspring.api.bodies import BatchBody, JobBody, PatchBody, RunNowBody
from mainspring.api.large_batch import JobBatch, Undecoded, read_batch
from mainspring.api.routes.paging import (
    DEFAULT_PAGE,
    MAX_GENERATION,
    MAX_PAGE,
    label_filter,
    link_header,
    several,
    time_filter,
)
from mainspring.api.services import caller_of, services_of
from mainspring.domain.errors import InvalidInput, NotFound
from mainspring.kernel.config import MAX_BODY_BYTES
from mainspring.operations.read.search import JobQuery
from mainspring.wire.jobs import (
    BatchCreated,
    JobCreated,
    JobList,
    JobPatch,
    JobRequest,
    JobView,
    MissedRange,
    RunNowRequest,
    Upcoming,
)
from mainspring.wire.runs import JobStatus, JobTimelineEntry, RunView

Http = Request[Any, Any, Any]
_VERBS = {"pause": "jobs.pause", "resume": "jobs.resume", "runNow": "jobs.run_now", "run-now": "jobs.run_now"}
Limit = Annotated[int, QueryParameter(ge=1, le=MAX_PAGE)]
Generation = Annotated[int | None, QueryParameter(ge=1, le=MAX_GENERATION)]


@post("/", dto=JobBody, return_dto=None, summary="Create a job", operation="jobs.create")
async def create_job(request: Http, data: JobRequest) -> Response[JobCreated]:
    done = await services_of(request).submitter.submit(caller_of(request), data)
    job_id = done.job_ids[0]
    return Response(
        JobCreated(job_id, done.generations[0]),
        status_code=200 if done.repeated[0] else 201,
        headers={"Location": f"/v1/jobs/{job_id}"},
    )


@post(
    ["/v1/jobs:batch", "/jobs:batch"],
    dto=BatchBody,
    return_dto=None,
    summary="Create up to 10,000 jobs, all or none",
    operation="jobs.create_batch",
    request_max_body_size=MAX_BODY_BYTES,
)
async def create_jobs(request: Http, data: JobBatch) -> BatchCreated:
    if isinstance(data, Undecoded):
        data = await read_batch(data.body)
    done = await services_of(request).submitter.submit_batch(caller_of(request), data.jobs)
    return BatchCreated(len(done.job_ids), done.job_ids)


@get(
    "/",
    summary="List jobs, newest first",
    description="Without `status`: the jobs that have yet to fire or will fire again. With it: the jobs that show one "
    "of these statuses (SCHEDULED, RUNNING, PAUSED, COMPLETED, FAILED, CANCELLED, or pending for SCHEDULED), one-time "
    "jobs that have fired included. `latest_run`: the status of the latest run. Times from `_after` on, and before "
    "`_before`. Filters by status take several values and any case. A page may have fewer jobs than `limit`, or none, "
    "while `next` says that more may follow.",
    operation="jobs.list",
)
async def list_jobs(
    request: Http,
    status: list[str] | None = None,
    latest_run: list[str] | None = None,
    label: str | None = None,
    queue: str | None = None,
    owner: str | None = None,
    q: str | None = None,
    created_after: str | None = None,
    created_before: str | None = None,
    next_fire_after: str | None = None,
    next_fire_before: str | None = None,
    declared_by: str | None = None,
    cursor: str | None = None,
    limit: Limit = DEFAULT_PAGE,
) -> Response[JobList]:
    query = JobQuery(
        several(status),
        queue,
        owner,
        label_filter(label),
        q,
        cursor,
        limit,
        declared_by=declared_by,
        latest=several(latest_run),
        created_after=time_filter(created_after, "created_after"),
        created_before=time_filter(created_before, "created_before"),
        next_fire_after=time_filter(next_fire_after, "next_fire_after"),
        next_fire_before=time_filter(next_fire_before, "next_fire_before"),
    )
    page = await services_of(request).job_reader.jobs(caller_of(request), query)
    return Response(page, headers=link_header(request, page.next))


@get("/{job_id:str}", summary="Get a job, or an earlier generation of it", operation="jobs.read")
async def get_job(request: Http, job_id: str, generation: Generation = None) -> Response[JobView]:
    return _with_version(await services_of(request).job_reader.job(caller_of(request), job_id, generation))


@patch(
    "/{job_id:str}",
    dto=PatchBody,
    return_dto=None,
    summary="Change any subset of a job's fields",
    operation="jobs.update",
)
async def patch_job(
    request: Http,
    job_id: str,
    data: JobPatch,
    if_match: Annotated[str | None, HeaderParameter(name="If-Match")] = None,
) -> Response[JobView]:
    return await _change(request, job_id, data, if_match)


@put(
    "/{job_id:str}",
    dto=PatchBody,
    return_dto=None,
    summary="Change any subset of a job's fields",
    operation="jobs.update",
)
async def put_job(
    request: Http,
    job_id: str,
    data: JobPatch,
    if_match: Annotated[str | None, HeaderParameter(name="If-Match")] = None,
) -> Response[JobView]:
    return await _change(request, job_id, data, if_match)


@delete("/{job_id:str}", status_code=200, summary="Cancel a job and its live runs", operation="jobs.cancel")
async def delete_job(request: Http, job_id: str) -> Response[JobView]:
    services = services_of(request)
    await services.amender.cancel_job(caller_of(request), job_id)
    return _with_version(await services.job_reader.job(caller_of(request), job_id))


@post(
    "/{job_and_verb:str}",
    dto=RunNowBody,
    return_dto=None,
    status_code=200,
    summary="Pause, resume or run a job: job_id:pause, :resume, :runNow",
    verbs=_VERBS,
)
async def act_on_job(request: Http, job_and_verb: str, data: RunNowRequest | None = None) -> Response[Any]:
    job_id, colon, verb = job_and_verb.rpartition(":")
    if not colon:
        raise NotFound(
            f"POST /v1/jobs/{job_and_verb} has no verb", code="no_such_route", hint="add :pause, :resume or :runNow"
        )
    return await _act(request, job_id, verb, data or RunNowRequest())


@post(
    "/{job_id:str}/{verb:str}",
    dto=RunNowBody,
    return_dto=None,
    status_code=200,
    summary="Pause, resume or run a job, with the verb as a path segment",
    verbs=_VERBS,
)
async def act_on_job_by_path(request: Http, job_id: str, verb: str, data: RunNowRequest | None = None) -> Response[Any]:
    return await _act(request, job_id, verb, data or RunNowRequest())


@get("/{job_id:str}/status", summary="Get a job's status and its latest run", operation="jobs.status")
async def job_status(request: Http, job_id: str) -> JobStatus:
    return await services_of(request).job_reader.status(caller_of(request), job_id)


@get("/{job_id:str}/runs", summary="List a job's runs, newest first", operation="jobs.runs")
async def job_runs(
    request: Http,
    job_id: str,
    cursor: str | None = None,
    limit: Limit = DEFAULT_PAGE,
    generation: Generation = None,
) -> Response[list[RunView]]:
    page = await services_of(request).run_reader.runs_of_job(caller_of(request), job_id, cursor, limit, generation)
    return Response(page.runs, headers=link_header(request, page.next))


@get("/{job_id:str}/upcoming", summary="List a job's next fire times", operation="jobs.upcoming")
async def job_upcoming(request: Http, job_id: str, n: Annotated[int, QueryParameter(ge=1, le=1000)] = 20) -> Upcoming:
    return await services_of(request).job_reader.upcoming(caller_of(request), job_id, n)


@get("/{job_id:str}/missed", summary="List missed fires as ranges, newest first", operation="jobs.missed")
async def job_missed(request: Http, job_id: str, limit: Limit = 100) -> list[MissedRange]:
    return await services_of(request).job_reader.missed(caller_of(request), job_id, limit)


@get(
    "/{job_id:str}/timeline",
    summary="List what happened to a job, newest first",
    description="Its runs, each at the time at which it was created, and what is known of its own life: when it was "
    "created, its last change, and fires that were missed. The next page is in the Link header.",
    operation="jobs.timeline",
)
async def job_timeline(
    request: Http, job_id: str, cursor: str | None = None, limit: Limit = DEFAULT_PAGE
) -> Response[list[JobTimelineEntry]]:
    page = await services_of(request).job_timeline.timeline(caller_of(request), job_id, cursor, limit)
    return Response(page.entries, headers=link_header(request, page.next))


async def _change(request: Http, job_id: str, data: JobPatch, if_match: str | None) -> Response[JobView]:
    services = services_of(request)
    await services.amender.update(caller_of(request), job_id, data, _version(if_match))
    return _with_version(await services.job_reader.job(caller_of(request), job_id))


async def _act(request: Http, job_id: str, verb: str, data: RunNowRequest) -> Response[Any]:
    services, caller = services_of(request), caller_of(request)
    if verb in ("pause", "resume"):
        _refuse_fields(data, verb)
    match verb:
        case "pause":
            await services.amender.pause(caller, job_id)
        case "resume":
            await services.amender.resume(caller, job_id)
        case "runNow" | "run-now":
            ran = await services.manual_runs.run_now(caller, job_id, data)
            accepted = await services.run_reader.accepted(caller, job_id, ran.run_id)
            return Response(accepted, status_code=200 if ran.repeated else 202)
        case _:
            raise NotFound(f"a job has no verb {verb!r}", code="no_such_route", hint="use :pause, :resume or :runNow")
    return _with_version(await services.job_reader.job(caller, job_id))


def _refuse_fields(data: RunNowRequest, verb: str) -> None:
    """Refuse fields that this verb would ignore."""
    if memoryview(data.payload):
        raise InvalidInput(f"{verb} takes no payload", field="payload", hint="leave it out")
    if data.idempotency_key is not None:
        raise InvalidInput(f"{verb} takes no idempotency_key", field="idempotency_key", hint="leave it out")


def _with_version(view: JobView) -> Response[JobView]:
    return Response(view, status_code=200, headers={"ETag": f'"{view.version}"'})


def _version(if_match: str | None) -> int | None:
    if if_match is None or if_match.strip() == "*":
        return None
    text = if_match.strip().removeprefix("W/").strip('"')
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise InvalidInput("If-Match is not a version", field="If-Match", expected='a number such as "3"')
    return int(text)


HANDLERS = [
    create_job, list_jobs, get_job, patch_job, put_job, delete_job, act_on_job, act_on_job_by_path,
    job_status, job_runs, job_upcoming, job_missed, job_timeline,
]  # fmt: skip


def job_routers() -> list[Router]:
    return [
        Router("/v1/jobs", route_handlers=HANDLERS, tags=["jobs"]),
        Router("/jobs", route_handlers=HANDLERS, include_in_schema=False),
    ]
