"""Make the server's recurring jobs those that the application's decorators describe; a worker does so at its start."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from msgspec.structs import asdict

from mainspring.domain.errors import Conflict, InvalidInput, VersionMismatch
from mainspring.domain.intake import define
from mainspring.domain.job import JobDefinition, Priority
from mainspring.domain.transitions import JobStatus
from mainspring.sdk.app import AppSchedule, Mainspring
from mainspring.sdk.client import AsyncClient
from mainspring.sdk.client_core import encode
from mainspring.sdk.job_fields import job_request
from mainspring.wire.jobs import JobRequest, JobView

Done = Literal["created", "updated", "unchanged", "left cancelled"]
_TRIES = 5


async def ensure_schedules(client: AsyncClient, app: Mainspring) -> dict[str, Done]:
    """Create or update the jobs of `app.schedules`; gives what was done with each.

    Fields that the code does not name are left as operators set them, and a job that somebody cancelled stays so.
    """
    return {schedule.job_id: await _ensure(client, schedule) for schedule in app.schedules}


async def _ensure(client: AsyncClient, schedule: AppSchedule) -> Done:
    fields = schedule.fields()
    try:
        await client.submit(**fields)
    except Conflict:
        return await _update(client, schedule.job_id, job_request(fields))
    return "created"


async def _update(client: AsyncClient, job_id: str, wanted: dict[str, Any]) -> Done:
    for _ in range(_TRIES):
        present = await client.job(job_id)
        if present.status == JobStatus.CANCELLED:
            return "left cancelled"
        changes: Any = differences(present, wanted)
        if not changes:
            return "unchanged"
        try:
            await client.update_job(job_id, if_version=present.version, **changes)
        except VersionMismatch:
            continue  # another worker of the same application is at it too; look again
        return "updated"
    raise Conflict(f"job {job_id} kept changing while it was being updated", field="job_id")


def differences(present: JobView, wanted: dict[str, Any]) -> dict[str, Any]:
    """The fields of `wanted` (a request) that say something else than `present`."""
    definition = _defined(wanted)
    differing = {name for name, differs in _compared(present, definition).items() if differs}
    if "schedule" in differing:
        differing.add("timezone")
    return {name: value for name, value in wanted.items() if name in differing}


def _defined(wanted: dict[str, Any]) -> JobDefinition:
    """Read the request as the server would, so that "@daily" equals "0 0 * * *" and "15m" equals 900."""
    try:
        return define(msgspec.json.decode(encode(wanted), type=JobRequest), datetime.now(UTC))
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the schedule of job {wanted.get('job_id')} cannot be read: {error}") from None


def _compared(present: JobView, wanted: JobDefinition) -> dict[str, bool]:
    schedule, spec = wanted.schedule, wanted.spec
    when = (present.schedule_type, present.cron_expression, present.every)
    payload = {} if wanted.payload is None else msgspec.json.decode(wanted.payload)
    return {
        "task": present.task != wanted.task,
        "name": present.name != wanted.name,
        "payload": (present.payload or {}) != payload,
        "schedule": when != (schedule.kind, schedule.cron, schedule.every)
        or (schedule.cron is not None and present.timezone != schedule.timezone),
        "queue": present.queue != wanted.queue,
        "priority": present.priority != Priority(wanted.priority).word,
        "timeout": present.timeout != spec.timeout,
        "retries": present.retry.max_attempts != spec.retry.max_attempts,
        "retry": asdict(present.retry) != asdict(spec.retry),
        "misfire": asdict(present.misfire) != asdict(spec.misfire),
        "overlap": present.overlap != wanted.overlap.word,
        "delivery": present.delivery != spec.delivery,
        "owner": present.owner != spec.owner,
        "description": present.description != spec.description,
        "labels": present.labels != (spec.labels or {}),
    }
