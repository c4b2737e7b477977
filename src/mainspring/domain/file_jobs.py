"""Jobs of files: a file says all of a job, so what it does not say has its default. And the other way round: the fields
that a file needs to say what a job is."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from mainspring.domain.durations import format_duration, parse_duration
from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.declaration import TaskDeclaration, defined
from mainspring.domain.intake.patch import keep_unrequested, long_form
from mainspring.domain.intake.request import define
from mainspring.domain.intake.schedule_patch import schedule_as_given
from mainspring.domain.intake.unique import check_unchanged
from mainspring.domain.job import JobDefinition, Priority
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind
from mainspring.domain.showing import show_job
from mainspring.domain.transitions import JobStatus
from mainspring.domain.workflows.flow import WORKFLOW_TASK
from mainspring.kinds.registry import kind_of_task, task_kinds
from mainspring.wire.fields import DURATION, FIELDS
from mainspring.wire.files import FieldChange
from mainspring.wire.jobs import JobRequest
from mainspring.wire.schedules import ScheduleIn

_encode = msgspec.json.Encoder().encode
_WHEN = ("schedule", "schedule_type", "schedule_time", "cron_expression", "cron", "timezone", "delay")
# Fields of the view that say again what others say, or that a file does not have.
_NOT_COMPARED = {
    "job_id", "schedule", "schedule_in_words", "schedule_time", "calendar_version", "runs_left", "declared_by",
    "idempotency_key", "unique", "max_retries",
}  # fmt: skip
COMPARED = tuple(dict.fromkeys(name for field in FIELDS for name in field.shown if name not in _NOT_COMPARED))


def in_file(request: JobRequest, job_id: str) -> JobRequest:
    """The request of a job that a file has under this id. Without a schedule it runs only when it is told to."""
    if all(getattr(request, name) is None for name in _WHEN):
        request = msgspec.structs.replace(request, schedule="manual")
    return msgspec.structs.replace(request, job_id=job_id)


def wanted_job(request: JobRequest, now: datetime, known: Mapping[str, TaskDeclaration]) -> JobDefinition:
    """The definition of a job of a file. Raises InvalidInput also for one that runs once."""
    return not_once(defined(request, now, known))


def not_once(definition: JobDefinition) -> JobDefinition:
    if definition.schedule.one_time:
        raise InvalidInput(
            "a job of a file cannot run once: it would run again with each application of the file", field="schedule",
            hint="give it cron, every, rrule or after, or leave the schedule out and run it by hand; "
            "`mainspring submit` adds a job that runs once",
        )  # fmt: skip
    return definition


def instead(stored: JobDefinition, wanted: JobDefinition) -> JobDefinition:
    """The definition `wanted` for a job that exists. Its schedule stays as it is stored if it says the same, so that an
    interval goes on in its steps."""
    schedule = stored.schedule if same_schedule(stored.schedule, wanted.schedule) else wanted.schedule
    spec = keep_unrequested(stored.spec, wanted.spec)
    changed = msgspec.structs.replace(
        wanted,
        job_id=stored.job_id,
        schedule=schedule,
        spec=msgspec.structs.replace(spec, idempotency_key=stored.spec.idempotency_key, unique=stored.spec.unique),
        idempotency_key=stored.idempotency_key,
    )
    check_unchanged(stored, changed)
    return changed


def same_schedule(stored: Schedule, wanted: Schedule) -> bool:
    """Whether a schedule as it was given says what a stored one says."""
    as_stored = msgspec.structs.replace(
        wanted,
        anchor=stored.anchor if wanted.anchor is None else wanted.anchor,
        seed=stored.seed,
        calendar_version=stored.calendar_version,
        calendar_rules=stored.calendar_rules,
    )
    return as_stored == stored


def field_changes(stored: JobDefinition, wanted: JobDefinition, now: datetime) -> list[FieldChange]:
    """What differs, as a job shows it."""
    before, after = _shown(stored, now), _shown(wanted, now)
    return [FieldChange(name, before[name], after[name]) for name in COMPARED if before[name] != after[name]]


def _shown(definition: JobDefinition, now: datetime) -> dict[str, Any]:
    view = show_job(
        definition,
        job_id=definition.job_id or "",
        status=JobStatus.SCHEDULED,
        next_fire_at=None,
        last_fired_for=None,
        shard=None,
        version=1,
        created_at=now,
        updated_at=now,
    )
    found: dict[str, Any] = msgspec.json.decode(_encode(view))
    if not found["payload"]:
        found["payload"] = None
    return found


def exported_job(stored: JobDefinition, now: datetime, known: Mapping[str, TaskDeclaration]) -> dict[str, Any]:
    """The fields with which a file says what the job is, without those that say the default."""
    given: dict[str, Any] = {name: value for name, value in long_form(stored).items() if value is not None}
    for name in ("job_id", "idempotency_key", "unique"):
        given.pop(name, None)
    if stored.payload is None:
        del given["payload"]
    if given.get("name") == stored.job_id:
        del given["name"]
    base = JobRequest(job_id=stored.job_id, schedule="manual", **{name: given[name] for name in _work(given)})
    usual = long_form(define(base, now) if stored.task == WORKFLOW_TASK else defined(base, now, known))
    kept = {name: value for name, value in given.items() if name in _work(given) or value != usual.get(name)}
    found: dict[str, Any] = msgspec.json.decode(_encode(JobRequest(**kept)))
    if "retry" in found and isinstance(usual.get("retry"), msgspec.Struct):
        found["retry"] = _members(found["retry"], usual["retry"])
    if "misfire" in found:
        found["misfire"] = _members(found["misfire"], usual["misfire"])
    kind = kind_of_task(stored.task)
    if kind is not None and kind.field in found:
        found.pop("task", None)
    if found.get("payload") in ({}, None):
        found.pop("payload", None)
    for field in FIELDS:
        if field.kind is DURATION and isinstance(found.get(field.name), int | float):
            found[field.name] = in_words(found[field.name])
    if "priority" in found:
        found["priority"] = Priority(found["priority"]).word
    when = exported_schedule(stored.schedule)
    return found if when is None else {"schedule": when, **found}


def exported_schedule(schedule: Schedule) -> dict[str, Any] | None:
    """None for a job that runs only when it is told to."""
    if schedule.kind is ScheduleKind.MANUAL:
        return None
    if schedule.kind is ScheduleKind.AFTER:
        return {"after": list(schedule.after or ())}
    if schedule.kind is ScheduleKind.EVENT:
        return _event_as_given(schedule)
    given = schedule_as_given(schedule, None, "timezone") if schedule.recurring else ScheduleIn(at=_text(schedule.at))
    found: dict[str, Any] = msgspec.json.decode(_encode(given))
    if found.get("timezone") == "UTC":
        del found["timezone"]
    for name in ("every", "jitter"):
        if name in found:
            found[name] = in_words(found[name])
    return found


def _event_as_given(schedule: Schedule) -> dict[str, Any]:
    found: dict[str, Any] = {"event": schedule.event}
    if schedule.condition is not None:
        found["if"] = schedule.condition
    if schedule.batch is not None:
        found["batch"] = {"size": schedule.batch, "wait": in_words(schedule.batch_wait or 0.0)}
        if schedule.by_key:
            found["batch"]["by_key"] = True
    if schedule.debounce is not None:
        found["debounce"] = in_words(schedule.debounce)
    return found


def in_words(seconds: float) -> str | float:
    """A duration as people write it, if that says exactly the same."""
    text = format_duration(seconds)
    try:
        exact = parse_duration(text, "duration") == seconds
    except InvalidInput:
        exact = False
    return text if exact else seconds


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _work(given: Mapping[str, Any]) -> list[str]:
    """The fields that say what runs."""
    names = ("task", "payload", *(kind.field for kind in task_kinds()))
    return [name for name in names if name in given]


def _members(found: dict[str, Any], usual: msgspec.Struct) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.json.decode(_encode(usual))
    return {name: value for name, value in found.items() if plain.get(name) != value}
