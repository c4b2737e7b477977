"""Refused changes of jobs, for servers and for the test box. Each hint names a way that works; tests/api/test_hints.py
follows them all."""

from __future__ import annotations

from mainspring.domain.errors import Conflict
from mainspring.domain.transitions import JobStatus

ALREADY_FIRED = "already_fired"
_AGAIN = "create it again with POST /v1/jobs"


def cancelled(job_id: str, *, one_time: bool, code: str = "job_cancelled") -> Conflict:
    """The job is CANCELLED, and the request needs one that is not."""
    if one_time:
        return Conflict(f"job {job_id!r} was to run once and is CANCELLED", code=code, hint=_AGAIN)
    hint = f"revive it with POST /v1/jobs/{job_id}:resume, or {_AGAIN}"
    return Conflict(f"job {job_id!r} is CANCELLED", code=code, hint=hint)


def ended(job_id: str, status: JobStatus, what: str, *, one_time: bool, code: str) -> Conflict:
    """The job is CANCELLED or COMPLETED, and the request needs one that will fire."""
    if status is JobStatus.CANCELLED:
        return cancelled(job_id, one_time=one_time, code=code)
    hint = f"give it a new schedule with PATCH /v1/jobs/{job_id}, or {_AGAIN}"
    return Conflict(f"job {job_id!r} is {status.value} and cannot be {what}", code=code, hint=hint)


def already_fired(job_id: str, what: str, why: str = "has fired") -> Conflict:
    """A one-time job is a run from then on."""
    detail = f"job {job_id!r} was to run once and {why}; it cannot be {what}"
    return Conflict(detail, code=ALREADY_FIRED, hint=f"{_AGAIN} when it has ended")


def paused(job_id: str) -> Conflict:
    """A change to a fire now, which the pause would hold back."""
    hint = f"resume it first with POST /v1/jobs/{job_id}:resume, or run it once with POST /v1/jobs/{job_id}:runNow"
    return Conflict(f"job {job_id!r} is PAUSED, so it cannot be changed to run now", code="wrong_status", hint=hint)


def job_exists(job_id: str, status: JobStatus) -> Conflict:
    """The id belongs to a job that has not ended."""
    return id_taken(
        f"a job called {job_id!r} exists already, and it is {status.value}",
        f"change it with PATCH /v1/jobs/{job_id}, cancel it first with DELETE /v1/jobs/{job_id}, or choose another"
        " job_id",
    )


def run_lives(job_id: str, run_id: str) -> Conflict:
    """The id belongs to an ended job with a run that has not ended."""
    return id_taken(
        f"a job called {job_id!r} exists already, and its run {run_id} has not ended",
        f"wait until GET /v1/runs/{run_id} shows its end, cancel it first with DELETE /v1/jobs/{job_id}, or choose"
        " another job_id",
    )


def id_taken(detail: str, hint: str) -> Conflict:
    return Conflict(detail, code="job_exists", field="job_id", hint=hint)


def is_a_step(job_id: str, workflow_id: str) -> Conflict:
    """The id is that of the runs of a step, or of a member of a mapped one."""
    again = "repeat a step with POST /v1/workflow-runs/{run_id}:rerun"
    hint = f"change the workflow with PATCH /v1/workflows/{workflow_id}, or {again}"
    return Conflict(f"job {job_id!r} belongs to a step of workflow {workflow_id!r}", code="is_a_step", hint=hint)


def overlaps(run_id: object) -> Conflict:
    """A workflow run that cannot run again beside another one."""
    return Conflict(
        f"workflow run {run_id} cannot run again now: another run of the workflow is alive, and they do not overlap",
        code="overlap",
        hint="try again when that one has ended",
    )
