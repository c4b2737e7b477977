"""/v1/jobs, also served as /jobs."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Request, Response, Router, delete, get, patch, post, put
from litestar.params import HeaderParameter, QueryParameter

from mainspring.api.bodies import BatchBody, JobBody, PatchBody
from mainspring.api.large_batch import JobBatch, Undecoded, read_batch
from mainspring.api.routes.paging import DEFAULT_PAGE, MAX_GENERATION, MAX_PAGE, link_header, several
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
    RunNowAccepted,
    Upcoming,
)
from mainspring.wire.runs import JobStatus, RunView

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


@get("/", summary="List jobs that will fire", operation="jobs.list")
async def list_jobs(
    request: Http,
    status: list[str] | None = None,
    label: str | None = None,
    queue: str | None = None,
    owner: str | None = None,
    q: str | None = None,
    declared_by: str | None = None,
    cursor: str | None = None,
    limit: Limit = DEFAULT_PAGE,
) -> Response[JobList]:
    query = JobQuery(several(status), queue, owner, _label(label), q, cursor, limit, declared_by)
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
    status_code=200,
    summary="Pause, resume or run a job: job_id:pause, :resume, :runNow",
    verbs=_VERBS,
)
async def act_on_job(request: Http, job_and_verb: str) -> Response[Any]:
    job_id, colon, verb = job_and_verb.rpartition(":")
    if not colon:
        raise NotFound(
            f"POST /v1/jobs/{job_and_verb} has no verb", code="no_such_route", hint="add :pause, :resume or :runNow"
        )
    return await _act(request, job_id, verb)


@post(
    "/{job_id:str}/{verb:str}",
    status_code=200,
    summary="Pause, resume or run a job, with the verb as a path segment",
    verbs=_VERBS,
)
async def act_on_job_by_path(request: Http, job_id: str, verb: str) -> Response[Any]:
    return await _act(request, job_id, verb)


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


async def _change(request: Http, job_id: str, data: JobPatch, if_match: str | None) -> Response[JobView]:
    services = services_of(request)
    await services.amender.update(caller_of(request), job_id, data, _version(if_match))
    return _with_version(await services.job_reader.job(caller_of(request), job_id))


async def _act(request: Http, job_id: str, verb: str) -> Response[Any]:
    services, caller = services_of(request), caller_of(request)
    match verb:
        case "pause":
            await services.amender.pause(caller, job_id)
        case "resume":
            await services.amender.resume(caller, job_id)
        case "runNow" | "run-now":
            ran = await services.amender.run_now(caller, job_id)
            return Response(RunNowAccepted(str(ran.run_id), job_id), status_code=202)
        case _:
            raise NotFound(f"a job has no verb {verb!r}", code="no_such_route", hint="use :pause, :resume or :runNow")
    return _with_version(await services.job_reader.job(caller, job_id))


def _with_version(view: JobView) -> Response[JobView]:
    return Response(view, status_code=200, headers={"ETag": f'"{view.version}"'})


def _version(if_match: str | None) -> int | None:
    if if_match is None or if_match.strip() == "*":
        return None
    text = if_match.strip().removeprefix("W/").strip('"')
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise InvalidInput("If-Match is not a version", field="If-Match", expected='a number such as "3"')
    return int(text)


def _label(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    for separator in (":", "="):
        name, found, value = text.partition(separator)
        if found and name:
            return name, value
    raise InvalidInput("a label filter needs a name and a value", field="label", expected="label=team:bi")


HANDLERS = [
    create_job, list_jobs, get_job, patch_job, put_job, delete_job, act_on_job, act_on_job_by_path,
    job_status, job_runs, job_upcoming, job_missed,
]  # fmt: skip


def job_routers() -> list[Router]:
    return [
        Router("/v1/jobs", route_handlers=HANDLERS, tags=["jobs"]),
        Router("/jobs", route_handlers=HANDLERS, include_in_schema=False),
    ]
