"""Calls for jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypedDict, Unpack

from mainspring.kernel.ids import uuid7
from mainspring.sdk.client.calls.common import job_path, match_header, query_of, verb, with_payload
from mainspring.sdk.client.core import Call, ServerAnswer, encode, json_of, next_cursor, segment
from mainspring.sdk.client.job_fields import JobChanges, JobFields, When, job_patch, job_request
from mainspring.sdk.client.server_warnings import warning_of
from mainspring.wire.applications import DeclarationRequest, DeclarationView
from mainspring.wire.ids import IdList
from mainspring.wire.job_why import JobWhy
from mainspring.wire.jobs import BatchCreated, JobCreated, JobList, JobView, RunNowAccepted, Upcoming
from mainspring.wire.missed_fires import MissedRange
from mainspring.wire.protocol import GENERATED_KEY
from mainspring.wire.runs import (
    JobStatus,
    JobTimeline,
    JobTimelineEntry,
    RunList,
    RunView,
)

_job_created = warning_of(JobCreated)
_batch_created = warning_of(BatchCreated)
_job = json_of(JobView)
_changed_job = warning_of(JobView)
_job_list = json_of(JobList)
_job_status = json_of(JobStatus)
_upcoming = json_of(Upcoming)
_missed = json_of(list[MissedRange])
_job_why = json_of(JobWhy)
_timeline_entries = json_of(list[JobTimelineEntry])
_run_now = json_of(RunNowAccepted)
_run_array = json_of(list[RunView])
_id_list = json_of(IdList)
_declaration = json_of(DeclarationView)


class JobFilters(TypedDict, total=False):
    """Filters for jobs. `status`, `latest_run`, `health` and `schedule_type` may name several, with commas. Times from
    `_after` on, and before `_before`."""

    status: str | None
    latest_run: str | None
    health: str | None
    label: str | None
    queue: str | None
    owner: str | None
    q: str | None
    declared_by: str | None
    created_by: str | None
    task: str | None
    schedule_type: str | None
    created_after: When | None
    created_before: When | None
    next_fire_after: When | None
    next_fire_before: When | None
    limit: int | None
    cursor: str | None


def submit(**fields: Unpack[JobFields]) -> Call[JobCreated]:
    """Create a job. Without an idempotency key it gets a generated one, so that the request can be repeated safely."""
    body = job_request(fields)
    body.setdefault("idempotency_key", f"{GENERATED_KEY}{uuid7()}")
    return Call("POST", "/v1/jobs", _job_created, body=encode(body))


def add_job(task_id: str, time: When | None = None, payload: Any = None) -> Call[JobCreated]:
    """Run the task `task_id` at `time` (None: now) with `payload`."""
    return submit(task=task_id, at=time, payload=payload)


def submit_batch(jobs: Iterable[JobFields | Mapping[str, Any]]) -> Call[BatchCreated]:
    """Create up to 10,000 jobs, all or none. It is repeated after a lost response only if each has an idempotency
    key."""
    bodies = [job_request(fields) for fields in jobs]
    keyed = all("idempotency_key" in body for body in bodies)
    return Call("POST", "/v1/jobs:batch", _batch_created, body=encode({"jobs": bodies}), repeatable=keyed)


def job(job_id: str, *, generation: int | None = None) -> Call[JobView]:
    """The job `job_id`, or an earlier generation of it."""
    return Call("GET", job_path(job_id), _job, params=query_of({"generation": generation}))


def jobs(**filters: Unpack[JobFilters]) -> Call[JobList]:
    """One page of jobs, newest first: those that have yet to fire or will fire again, or those with a `status`.
    `label` is "key:value". `q` searches names and ids."""
    return Call("GET", "/v1/jobs", _job_list, params=query_of(filters))


def job_status(job_id: str) -> Call[JobStatus]:
    """The job's status and its latest run."""
    return Call("GET", job_path(job_id, "/status"), _job_status)


def job_runs(
    job_id: str, *, limit: int | None = None, cursor: str | None = None, generation: int | None = None
) -> Call[RunList]:
    """One page of the job's runs, newest first, of all its generations or of one."""
    params = query_of({"limit": limit, "cursor": cursor, "generation": generation})
    return Call("GET", job_path(job_id, "/runs"), _run_page, params=params)


def upcoming(job_id: str, n: int = 20) -> Call[Upcoming]:
    """The job's next `n` fire times."""
    return Call("GET", job_path(job_id, "/upcoming"), _upcoming, params=query_of({"n": n}))


def missed(job_id: str) -> Call[list[MissedRange]]:
    """The job's missed fires, as ranges with a reason."""
    return Call("GET", job_path(job_id, "/missed"), _missed)


def why_job(job_id: str, at: datetime | str | None = None) -> Call[JobWhy]:
    """Why the job did or did not run at a time, by default at its last fire. A time without a zone is by the clocks of
    its schedule."""
    return Call("GET", job_path(job_id, "/why"), _job_why, params=query_of({"at": at}))


def job_timeline(job_id: str, *, limit: int | None = None, cursor: str | None = None) -> Call[JobTimeline]:
    """One page of what happened to the job, newest first: its runs, its creation and last change, and missed fires."""
    params = query_of({"limit": limit, "cursor": cursor})
    return Call("GET", job_path(job_id, "/timeline"), _timeline_page, params=params)


def update_job(job_id: str, *, if_version: int | None = None, **changes: Unpack[JobChanges]) -> Call[JobView]:
    """Change some of the job's fields. With `if_version`, only if the job still has that version."""
    headers, body = match_header(if_version), encode(job_patch(changes))
    # After the first request the version has changed, so a repeated one would be rejected although the first succeeded.
    return Call("PATCH", job_path(job_id), _changed_job, body=body, headers=headers, repeatable=if_version is None)


def cancel_job(job_id: str, *, if_version: int | None = None) -> Call[JobView]:
    """Cancel the job and its live runs. With `if_version`, only if the job still has that version."""
    return Call("DELETE", job_path(job_id), _job, headers=match_header(if_version), repeatable=if_version is None)


def pause(job_id: str, *, if_version: int | None = None) -> Call[JobView]:
    """Stop firing the job until it is resumed. With `if_version`, only if the job still has that version."""
    return verb(job_path(job_id, ":pause"), _job, only_if=if_version)


def resume(job_id: str, *, if_version: int | None = None) -> Call[JobView]:
    """Resume the job from its next fire time on. With `if_version`, only if the job still has that version."""
    return verb(job_path(job_id, ":resume"), _job, only_if=if_version)


def run_now(
    job_id: str,
    payload: Mapping[str, Any] | None = None,
    *,
    idempotency_key: str | None = None,
    if_version: int | None = None,
) -> Call[RunNowAccepted]:
    """Run the job once now, in addition to its schedule, with another payload if one is given. A one-time job that has
    fired is repeated. The answer has the status of the run: SKIPPED if another run of the job is alive. It is repeated
    after a lost response only with an idempotency key, which stands for one run of this job. With `if_version`, only if
    the job still has that version."""
    given = {} if idempotency_key is None else {"idempotency_key": idempotency_key}
    path, headers, body = job_path(job_id, ":runNow"), match_header(if_version), with_payload(given, payload)
    return Call("POST", path, _run_now, body=body, headers=headers, repeatable=idempotency_key is not None)


def declare(application: str, declaration: DeclarationRequest) -> Call[DeclarationView]:
    """Declare which schedules the code of an application has. Workers call it when they start."""
    path = f"/v1/applications/{segment(application)}"
    return Call("PUT", path, _declaration, body=encode(declaration))


def find_ids(part: str, *kinds: str) -> Call[IdList]:
    """The ids that begin or end with `part`. Kinds: run, job, dead_letter, worker; all if none is given. The newest
    100,000 of each are searched."""
    return Call("GET", "/v1/ids", _id_list, params=query_of({"part": part, "kind": ",".join(kinds) or None}))


def _run_page(answer: ServerAnswer) -> RunList:
    return RunList(runs=_run_array(answer), next=next_cursor(answer))


def _timeline_page(answer: ServerAnswer) -> JobTimeline:
    return JobTimeline(entries=_timeline_entries(answer), next=next_cursor(answer))
