"""/v1/jobs, also served as /jobs."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET

from mainspring.api.answers import CHANGES_A_JOB, FIELDS_OF_A_JOB, LISTS, QUOTAS, RUNS_NOW, SEARCHES, Answer
from mainspring.api.bodies import decode_batch
from mainspring.api.handlers import delete, get, patch, post, put
from mainspring.api.large_batch import JobBatch, Undecoded, read_batch
from mainspring.api.openapi import request_examples as examples
from mainspring.api.reach import Reach
from mainspring.api.routes.backfills import create_backfill
from mainspring.api.routes.paging import (
    DEFAULT_PAGE,
    MAX_GENERATION,
    ListView,
    PageLimit,
    label_filter,
    link_header,
    several,
    time_filter,
)
from mainspring.api.routes.versions import IfMatch, etag, version_of
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import QueryParameter, Request, Response, Router
from mainspring.domain.schedules.words import explain
from mainspring.kernel.config import MAX_BODY_BYTES
from mainspring.operations.access.permissions import OWNERS, READERS, SUBMITTERS
from mainspring.operations.paging.search import JobQuery
from mainspring.wire.checks import JobCheck
from mainspring.wire.formats import Moment
from mainspring.wire.insights import JobSeries, WindowWord
from mainspring.wire.job_why import JobWhy
from mainspring.wire.jobs import (
    BatchCreated,
    JobCreated,
    JobList,
    JobPatch,
    JobRequest,
    JobRows,
    JobView,
    Nothing,
    RunNowAccepted,
    RunNowRequest,
    Upcoming,
)
from mainspring.wire.missed_fires import MissedRange
from mainspring.wire.runs import JobStatus, JobTimelineEntry, RunListRow, RunView
from mainspring.wire.states import HealthFilter, JobStatusFilter, RunStateFilter, ScheduleTypeFilter

Http = Request
Generation = Annotated[int | None, QueryParameter(ge=1, le=MAX_GENERATION)]
_UNIQUE = ("limited", "unique_other_task", "unique_started", "unique_taken")
_AMENDS = (
    *FIELDS_OF_A_JOB, *CHANGES_A_JOB, "already_fired", "already_fired_for", "is_a_step", "is_a_workflow",
    "job_cancelled", "quota_exceeded", "version_mismatch", "wrong_status",
)  # fmt: skip


@post(
    "/", summary="Create a job", operation="jobs.create", reach=Reach.FILTERED, roles=SUBMITTERS,
    answers={
        201: Answer("The job is stored. It is never lost from now on.", headers=("Location",)),
        200: Answer(
            "The existing job: the idempotency key was used by the same request, or that job has the unique key.",
            ("Location",),
        ),
    },
    problems=(*FIELDS_OF_A_JOB, *CHANGES_A_JOB, *_UNIQUE, *QUOTAS, "idempotency_key_reused", "job_exists"),
    examples=examples.JOBS,
)  # fmt: skip
async def create_job(request: Http, data: JobRequest) -> Response[JobCreated]:
    """A job without a schedule runs at once. With an `idempotency_key`, a repeated request creates no second job: it
    answers 200 with the first one's id. The same key with another request is refused with `idempotency_key_reused`. The
    `job_id` of an ended job begins a new generation of it."""
    done = await services_of(request).submitter.submit(caller_of(request), data)
    job_id = done.job_ids[0]
    return Response(
        JobCreated(job_id, done.generations[0], done.unique[0], done.warnings),
        status_code=200 if done.repeated[0] else 201,
        headers={"Location": f"/v1/jobs/{job_id}"},
    )


@post(
    ["/v1/jobs:batch", "/jobs:batch"],
    decode=decode_batch,
    summary="Create up to 10,000 jobs, all or none",
    operation="jobs.create_batch", reach=Reach.FILTERED, roles=SUBMITTERS,
    request_max_body_size=MAX_BODY_BYTES,
    answers={201: Answer("All jobs are stored, or were stored before under their idempotency keys.")},
    problems=(
        *FIELDS_OF_A_JOB, *CHANGES_A_JOB, *QUOTAS, "batch_too_large", "conflict", "idempotency_key_reused",
        "invalid_batch", "job_exists", *_UNIQUE,
    ),
    examples=examples.BATCHES,
    body=JobBatch | list[JobRequest],
)  # fmt: skip
async def create_jobs(request: Http, data: JobBatch) -> BatchCreated:
    """If one job is refused, no job is stored, and `errors` of the refusal names the jobs by their index. A JSON array
    of jobs is accepted in place of the object."""
    if isinstance(data, Undecoded):
        data = await read_batch(data.body)
    done = await services_of(request).submitter.submit_batch(caller_of(request), data.jobs)
    merged = any(answer is not None for answer in done.unique)
    return BatchCreated(len(done.job_ids), done.job_ids, done.unique if merged else [], done.warnings)


@post(
    ["/v1/jobs:validate", "/jobs:validate"], status_code=200, operation="jobs.validate", reach=Reach.FILTERED,
    roles=READERS,
    summary="Check a job without creating it", problems=FIELDS_OF_A_JOB, examples=examples.JOBS,
)  # fmt: skip
async def check_job(request: Http, data: JobRequest) -> JobCheck:
    """Refused as its creation would be, with the field and a hint. Whether its id or key is taken is not looked at, and
    nothing is stored."""
    services, caller = services_of(request), caller_of(request)
    found = await services.submitter.validate(caller, data)
    warnings = await services.submitter.warnings(caller, found)
    schedule = found.schedule
    return JobCheck(found.task, found.queue, schedule.kind.value, schedule.words(), explain(schedule), warnings)


@get(
    "/", summary="List jobs, newest first", operation="jobs.list", reach=Reach.FILTERED,
    roles=READERS, problems=SEARCHES,
    answers={200: Answer("The jobs; with `view=row`, their rows.", body=JobList, or_body=JobRows)},
)  # fmt: skip
async def list_jobs(
    request: Http,
    status: list[JobStatusFilter] | None = None,
    latest_run: list[RunStateFilter] | None = None,
    health: list[HealthFilter] | None = None,
    label: str | None = None,
    queue: str | None = None,
    owner: str | None = None,
    q: str | None = None,
    created_after: Moment | None = None,
    created_before: Moment | None = None,
    next_fire_after: Moment | None = None,
    next_fire_before: Moment | None = None,
    declared_by: str | None = None,
    created_by: str | None = None,
    task: str | None = None,
    schedule_type: list[ScheduleTypeFilter] | None = None,
    cursor: str | None = None,
    limit: PageLimit = DEFAULT_PAGE,
    view: ListView = "full",
) -> Response[Any]:
    """Without `status`: the jobs that have yet to fire or will fire again. With it: the jobs that show one of these
    statuses, one-time jobs that have fired included. Times from `_after` on, and before `_before`. A page may have
    fewer jobs than `limit`, or none, while `next` says that more may follow."""
    query = JobQuery(
        several(status),
        queue,
        owner,
        label_filter(label),
        q,
        cursor,
        limit,
        declared_by=declared_by,
        created_by=created_by,
        task=task,
        schedule_types=several(schedule_type, "schedule_type"),
        latest=several(latest_run, "latest_run"),
        health=several(health, "health"),
        created_after=time_filter(created_after, "created_after"),
        created_before=time_filter(created_before, "created_before"),
        next_fire_after=time_filter(next_fire_after, "next_fire_after"),
        next_fire_before=time_filter(next_fire_before, "next_fire_before"),
    )
    reader = services_of(request).job_reader
    read = reader.rows if view == "row" else reader.jobs
    page = await read(caller_of(request), query)
    return Response(page, headers=link_header(request, page.next))


@get(
    "/{job_id:str}",
    summary="Get a job, or an earlier generation of it",
    operation="jobs.read",
    reach=Reach.OBJECT,
    roles=READERS,
)
async def get_job(request: Http, job_id: str, generation: Generation = None) -> Response[JobView]:
    """Also a job that has fired, was cancelled or has completed. The ETag is its version, for If-Match."""
    return _with_version(await services_of(request).job_reader.job(caller_of(request), job_id, generation))


@patch(
    "/{job_id:str}", summary="Change some fields of a job", operation="jobs.update", reach=Reach.FILTERED,
    roles=SUBMITTERS,
    problems=_AMENDS, examples=examples.CHANGES,
)  # fmt: skip
async def patch_job(request: Http, job_id: str, data: JobPatch, if_match: IfMatch = None) -> Response[JobView]:
    """Fields that are not given keep their values. null resets a field to its default. What was due before the change
    fires by the old definition. A one-time job whose new time has passed fires at once, for the time of the change. A
    one-time job that has fired cannot be changed; a repeat of a change that it has already changes nothing."""
    return await _change(request, job_id, data, if_match)


@put(
    "/{job_id:str}", summary="Change some fields of a job (as PATCH)",
    operation="jobs.update", reach=Reach.FILTERED, roles=SUBMITTERS, problems=_AMENDS, examples=examples.CHANGES,
)  # fmt: skip
async def put_job(request: Http, job_id: str, data: JobPatch, if_match: IfMatch = None) -> Response[JobView]:
    """PUT does what PATCH does: fields that are not given keep their values."""
    return await _change(request, job_id, data, if_match)


@delete(
    "/{job_id:str}", status_code=200, summary="Cancel a job and its live runs",
    operation="jobs.cancel", reach=Reach.OBJECT, roles=OWNERS,
    problems=(*CHANGES_A_JOB, "is_a_step", "version_mismatch"),
)  # fmt: skip
async def cancel_job(request: Http, job_id: str, if_match: IfMatch = None) -> Response[JobView]:
    """It fires no more. Runs that wait end as CANCELLED at once, and workers are told to stop those that run. A second
    call changes nothing."""
    services = services_of(request)
    await services.amender.cancel_job(caller_of(request), job_id, version_of(if_match))
    return _with_version(await services.job_reader.job(caller_of(request), job_id))


@post(
    "/{job_id:str}/pause", verb="pause", status_code=200, summary="Pause a job",
    operation="jobs.pause", reach=Reach.OBJECT, roles=OWNERS,
    problems=(*CHANGES_A_JOB, "already_fired", "is_a_step", "version_mismatch", "wrong_status"),
)  # fmt: skip
async def pause_job(
    request: Http, job_id: str, data: Nothing | None = None, if_match: IfMatch = None
) -> Response[JobView]:
    """It does not fire until it is resumed. The fires of a recurring job in between are recorded as missed. Pausing a
    paused job changes nothing."""
    services, caller = services_of(request), caller_of(request)
    await services.amender.pause(caller, job_id, version_of(if_match))
    return _with_version(await services.job_reader.job(caller, job_id))


@post(
    "/{job_id:str}/resume", verb="resume", status_code=200, summary="Resume a paused job",
    operation="jobs.resume", reach=Reach.OBJECT, roles=OWNERS,
    problems=(*CHANGES_A_JOB, "already_fired", "is_a_step", "not_paused", "version_mismatch"),
)  # fmt: skip
async def resume_job(
    request: Http, job_id: str, data: Nothing | None = None, if_match: IfMatch = None
) -> Response[JobView]:
    """It continues from now. A one-time job whose time has come during the pause fires now. Resuming a job that is not
    paused changes nothing."""
    services, caller = services_of(request), caller_of(request)
    await services.amender.resume(caller, job_id, version_of(if_match))
    return _with_version(await services.job_reader.job(caller, job_id))


@post(
    ["/{job_id:str}/runNow", "/{job_id:str}/run-now"], verb="runNow", status_code=202,
    summary="Run a job now", operation="jobs.run_now", reach=Reach.OBJECT, roles=OWNERS,
    answers={
        202: Answer("The new run. It is SKIPPED if another run is alive and the job does not overlap."),
        200: Answer("The idempotency key was used before for this job: the run of that request."),
    },
    problems=(*RUNS_NOW, "is_a_step", "version_mismatch"), examples=examples.RUNS_NOW,
)  # fmt: skip
async def run_job_now(
    request: Http, job_id: str, data: RunNowRequest | None = None, if_match: IfMatch = None
) -> Response[RunNowAccepted]:
    """A run beside the schedule, which stays as it is. It works on paused jobs too, and on one-time jobs that have
    fired, as a repeat."""
    services, caller = services_of(request), caller_of(request)
    wanted = data or RunNowRequest()
    services.quota_guard.check_payload(caller, wanted.payload)
    ran = await services.manual_runs.run_now(caller, job_id, wanted, version_of(if_match))
    accepted = await services.run_reader.accepted(caller, job_id, ran.run_id)
    return Response(accepted, status_code=200 if ran.repeated else 202)


@get(
    "/{job_id:str}/status",
    summary="Get a job's status and its latest run",
    operation="jobs.status",
    reach=Reach.OBJECT,
    roles=READERS,
)
async def get_job_status(request: Http, job_id: str) -> JobStatus:
    """The status of the job, and its latest run if it has had one."""
    return await services_of(request).job_reader.status(caller_of(request), job_id)


@get(
    "/{job_id:str}/timeline",
    summary="List what happened to a job, newest first",
    operation="jobs.timeline",
    reach=Reach.OBJECT,
    roles=READERS,
    problems=LISTS,
)
async def get_job_timeline(
    request: Http, job_id: str, cursor: str | None = None, limit: PageLimit = DEFAULT_PAGE
) -> Response[list[JobTimelineEntry]]:
    """Its runs, each at the time at which it was created, and what is known of its own life: when it was created, its
    last change, and fires that were missed. The next page is in the header Link."""
    page = await services_of(request).job_timeline.timeline(caller_of(request), job_id, cursor, limit)
    return Response(page.entries, headers=link_header(request, page.next))


@get(
    "/{job_id:str}/why", summary="Explain why a job did or did not run at a time", operation="jobs.why", roles=READERS,
    problems=SEARCHES,
)  # fmt: skip
async def explain_job(request: Http, job_id: str, at: str | None = None) -> JobWhy:
    """In a sentence: the run for that time, or why there is none. Without `at` the last fire of the job is explained. A
    time without a zone is by the clocks of the schedule; one without seconds means the whole minute."""
    services, caller = services_of(request), caller_of(request)
    return await services.job_why.why(caller, await services.job_reader.job(caller, job_id), at)


@get(
    "/{job_id:str}/series",
    summary="Get outcomes, durations and lags of a job's runs",
    operation="jobs.series",
    reach=Reach.OBJECT,
    roles=READERS,
    problems=LISTS,
)
async def get_job_series(request: Http, job_id: str, w: WindowWord = "24h") -> JobSeries:
    """The newest 100 runs, and what ended within the time `w`, in steps."""
    return await services_of(request).job_series.series(caller_of(request), job_id, w)


@get(
    "/{job_id:str}/runs",
    summary="List a job's runs, newest first",
    operation="jobs.runs",
    reach=Reach.FILTERED,
    roles=READERS,
    problems=LISTS,
    answers={200: Answer("The runs; with `view=row`, their rows.", body=list[RunView], or_body=list[RunListRow])},
)
async def list_job_runs(
    request: Http,
    job_id: str,
    cursor: str | None = None,
    limit: PageLimit = DEFAULT_PAGE,
    generation: Generation = None,
    view: ListView = "full",
) -> Response[Any]:
    """A JSON array. The address of the next page is in the header Link."""
    reader = services_of(request).run_reader
    read = reader.rows_of_job if view == "row" else reader.runs_of_job
    page = await read(caller_of(request), job_id, cursor, limit, generation)
    return Response(page.runs, headers=link_header(request, page.next))


@get(
    "/{job_id:str}/upcoming",
    summary="List a job's next fire times",
    operation="jobs.upcoming",
    reach=Reach.OBJECT,
    roles=READERS,
)
async def list_upcoming_fires(
    request: Http, job_id: str, n: Annotated[int, QueryParameter(ge=1, le=1000)] = 20
) -> Upcoming:
    """The times at which the job fires if it is neither paused nor changed."""
    return await services_of(request).job_reader.upcoming(caller_of(request), job_id, n)


@get(
    "/{job_id:str}/missed",
    summary="List missed fires as ranges, newest first",
    operation="jobs.missed",
    reach=Reach.OBJECT,
    roles=READERS,
)
async def list_missed_fires(request: Http, job_id: str, limit: PageLimit = 100) -> list[MissedRange]:
    """Fires that did not run, with the reason: no scheduler could fire them in time, or the job was paused or
    cancelled."""
    return await services_of(request).job_reader.missed(caller_of(request), job_id, limit)


async def _change(request: Http, job_id: str, data: JobPatch, if_match: str | None) -> Response[JobView]:
    services = services_of(request)
    services.quota_guard.check_payload(caller_of(request), data.payload)
    warnings = await services.amender.update(caller_of(request), job_id, data, version_of(if_match))
    view = await services.job_reader.job(caller_of(request), job_id)
    view.warnings = warnings or UNSET
    return _with_version(view)


def _with_version(view: JobView) -> Response[JobView]:
    return Response(view, status_code=200, headers=etag(view.version))


HANDLERS = [
    create_job, list_jobs, get_job, patch_job, put_job, cancel_job, pause_job, resume_job, run_job_now, create_backfill,
    get_job_status, get_job_timeline, explain_job, get_job_series, list_job_runs, list_upcoming_fires,
    list_missed_fires,
]  # fmt: skip


def job_routers() -> list[Router]:
    return [Router("/v1/jobs", route_handlers=HANDLERS), Router("/jobs", route_handlers=HANDLERS)]
