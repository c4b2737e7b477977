"""How a job at a server differs from what the code of an application declares."""

from __future__ import annotations

from typing import Any

import msgspec

from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.request import define
from mainspring.domain.schedules.schedule import ScheduleKind
from mainspring.domain.showing import show_job
from mainspring.domain.transitions import JobStatus
from mainspring.sdk.client.core import encode
from mainspring.wire.jobs import JobRequest, JobView

_SHOWN_AS = {
    "schedule": (
        *("schedule_type", "cron_expression", "timezone", "every", "dst", "rrule", "exdates"),
        *("jitter", "start", "end", "max_runs", "calendar", "outside", "schedule_in_words"),
    ),
    "retries": ("max_retries",),
    "rate": ("rate_limit",),
}
"""The fields of a job that show a field of the request under other names."""
_MERGED = ("retry", "misfire", "limits")
"""The server merges these with the job's values, so members that the code does not set stay as operators set them."""


def differences(present: JobView, wanted: dict[str, Any]) -> dict[str, Any]:
    """The fields of the request `wanted` that differ from `present`."""
    described = as_shown(present, wanted)

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


def as_shown(present: JobView, wanted: dict[str, Any]) -> JobView:
    """The wanted job as the server would show it, so that "@daily" equals "0 0 * * *" and "15m" equals 900."""
    try:
        # At the time of the job's creation: the schedule may have ended since.
        definition = define(msgspec.json.decode(encode(wanted), type=JobRequest), present.created_at)
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
    if name == "schedule_in_words" and view.schedule_type != ScheduleKind.EVENT:
        return None  # the other fields say it
    seen = getattr(view, name)
    if name != "payload":
        return seen
    return (msgspec.json.decode(seen) if isinstance(seen, msgspec.Raw) else seen) or {}
