"""Creates and updates the recurring jobs that the application's decorators describe. A worker does so at its start."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from mainspring.domain.errors import Conflict, InvalidInput, NotFound, VersionMismatch
from mainspring.domain.intake.request import define
from mainspring.domain.showing import show_job
from mainspring.domain.transitions import JobStatus
from mainspring.sdk.app.app import AppSchedule, Mainspring
from mainspring.sdk.client.core import encode
from mainspring.sdk.client.job_fields import job_request
from mainspring.wire.jobs import JobRequest, JobView

if TYPE_CHECKING:
    from mainspring.sdk.client.client import AsyncClient

Done = Literal["created", "updated", "unchanged", "left cancelled"]
_TRIES = 5
_SHOWN_AS = {
    "schedule": ("schedule_type", "cron_expression", "timezone", "every"),
    "retries": ("max_retries",),
}
"""The fields of a job that show a field of the request under other names."""
_MERGED = ("retry", "misfire", "limits")
"""The server merges these with the job's values, so members that the code does not set stay as operators set them."""


async def ensure_schedules(client: AsyncClient, app: Mainspring) -> dict[str, Done]:
    """Create or update the jobs of `app.schedules`. Returns what was done with each.

    Fields that the code does not set stay as operators set them. A cancelled job stays cancelled.
    """
    return {schedule.job_id: await _ensure(client, schedule) for schedule in app.schedules}


async def _ensure(client: AsyncClient, schedule: AppSchedule) -> Done:
    fields = schedule.fields()
    try:
        await client.job(schedule.job_id)  # first, because a create would begin a new generation of a cancelled job
    except NotFound:
        try:
            await client.submit(**fields)
        except Conflict:
            pass
        else:
            return "created"
    return await _update(client, schedule.job_id, job_request(fields))


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
            continue  # another worker of the same application changed it: read it again
        return "updated"
    raise Conflict(f"job {job_id} kept changing while it was being updated", field="job_id")


def differences(present: JobView, wanted: dict[str, Any]) -> dict[str, Any]:
    """The fields of the request `wanted` that differ from `present`."""
    described = _as_shown(present, wanted)

    def differs(name: str) -> bool:
        if name in _MERGED:
            one, other = getattr(present, name), getattr(described, name)
            return any(
                getattr(one, member, None) != getattr(other, member, None) for member in _given_members(wanted[name])
            )
        return any(
            _shown_value(present, seen) != _shown_value(described, seen) for seen in _SHOWN_AS.get(name, (name,))
        )

    changes = {name: value for name, value in wanted.items() if differs(name)}
    if "schedule" in changes and "timezone" in wanted:
        changes["timezone"] = wanted["timezone"]
    return changes


def _as_shown(present: JobView, wanted: dict[str, Any]) -> JobView:
    """The wanted job as the server would show it, so that "@daily" equals "0 0 * * *" and "15m" equals 900."""
    try:
        definition = define(msgspec.json.decode(encode(wanted), type=JobRequest), datetime.now(UTC))
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the schedule of job {wanted.get('job_id')} cannot be read: {error}") from None
    return show_job(
        definition,
        job_id=present.job_id,
        status=JobStatus(present.status),
        next_fire_at=present.next_fire_at,
        last_fired_for=present.last_fired_for,
        shard=present.shard_id,
        version=present.version,
        created_at=present.created_at,
        updated_at=present.updated_at,
    )


def _given_members(members: dict[str, Any]) -> list[str]:
    return [name for name, value in members.items() if value is not None]


def _shown_value(view: JobView, name: str) -> Any:
    seen = getattr(view, name)
    if name != "payload":
        return seen
    return (msgspec.json.decode(seen) if isinstance(seen, msgspec.Raw) else seen) or {}
