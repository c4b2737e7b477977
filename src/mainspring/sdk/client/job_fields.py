"""The fields of a job as Python keywords, and their conversion to a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict

from mainspring.domain.durations import is_duration
from mainspring.domain.errors import InvalidInput
from mainspring.domain.run_key import rfc3339
from mainspring.sdk.client.field_types import (
    CircuitBreakerOptions,
    ConcurrencyOptions,
    Delivery,
    DstOptions,
    EventsTogetherOptions,
    MisfireOptions,
    NotifyOptions,
    OnUpstreamFailure,
    Outside,
    Overlap,
    Priority,
    RateLimitOptions,
    ResourceLimitOptions,
    RetryOptions,
    Rule,
    Sandbox,
    ScheduleKind,
    UniqueOptions,
    Variables,
)
from mainspring.wire.fields import Duration as Duration
from mainspring.wire.fields import PlainKeywords
from mainspring.wire.kind_fields import KindKeywords

Moment = str | datetime
When = Moment | timedelta
_WAYS = ("at", "every", "cron", "rrule", "after", "event")
_SCHEDULE_FIELDS = ("schedule", *_WAYS, "delay", "schedule_time", "cron_expression")
_MEMBERS = ("if_", "batch", "debounce", "exdates", "jitter", "start", "end", "max_runs", "calendar", "outside")


class ExecutionFields(PlainKeywords, total=False):
    """How something runs. Jobs and the steps of workflows have these fields."""

    queue: str | None
    priority: Priority | None
    timeout: Duration | None
    kill_grace: Duration | None
    env: Variables | None
    secrets: Sequence[str] | None
    limits: ResourceLimitOptions | None
    sandbox: Sandbox | None
    run_as: str | None
    required_labels: Mapping[str, str] | None
    retries: int | None
    retry: RetryOptions | None
    delivery: Delivery | None
    owner: str | None
    description: str | None
    labels: Mapping[str, str] | None
    search: Sequence[str] | None
    keep_payload: bool | int | str | None
    concurrency: bool | int | ConcurrencyOptions | Sequence[ConcurrencyOptions] | None
    rate: str | None
    rate_limit: bool | str | RateLimitOptions | Sequence[RateLimitOptions] | None
    circuit_breaker: bool | CircuitBreakerOptions | None


class _Settings(ExecutionFields, total=False):
    """Fields that can be set for a job and changed later."""

    at: When | None
    every: Duration | None
    cron: str | None
    rrule: str | None
    after: Sequence[str] | None
    event: str | None
    if_: str | None
    batch: EventsTogetherOptions | None
    debounce: Duration | None
    exdates: Sequence[Moment] | None
    jitter: Duration | None
    start: Moment | None
    end: Moment | None
    max_runs: int | None
    delay: Duration | None
    timezone: str | None
    dst: DstOptions | None
    calendar: str | None
    outside: Outside | None
    schedule: str | Mapping[str, Any] | None
    name: str | None
    misfire: MisfireOptions | None
    overlap: Overlap | None
    depends_on: Sequence[str] | None
    rule: Rule | None
    on_upstream_failure: OnUpstreamFailure | None
    notify: Sequence[NotifyOptions] | None


class _TaskFields(KindKeywords, total=False):
    """The task and its payload, the short forms of the HTTP request, and the application that declares the job."""

    task: str | None
    job_type: str | None
    payload: Any
    schedule_type: ScheduleKind | None
    schedule_time: When | None
    cron_expression: str | None
    max_retries: int | None
    declared_by: str | None


class JobOptions(_Settings, total=False):
    """All fields except the task and its payload."""

    job_id: str | None
    idempotency_key: str | None
    unique: bool | UniqueOptions | None


class JobFields(JobOptions, _TaskFields, total=False):
    """All fields of `POST /v1/jobs`. `at`, `every`, `cron`, `rrule`, `after` and `event`, and `exdates`, `jitter`,
    `start`, `end` and `max_runs`, are members of `schedule`. `at` is a time, or a delay such as timedelta(minutes=5)
    or "5m". `dst` belongs to `cron` and `rrule`: {"gap": "skip", "overlap": "both"}. `if_`, a condition in CEL,
    `batch` and `debounce` belong to `event`."""


class PreviewFields(TypedDict, total=False):
    """The fields that say when, as in `JobFields`."""

    schedule: str | Mapping[str, Any] | None
    schedule_type: ScheduleKind | None
    at: When | None
    every: Duration | None
    cron: str | None
    rrule: str | None
    exdates: Sequence[Moment] | None
    jitter: Duration | None
    start: Moment | None
    end: Moment | None
    max_runs: int | None
    dst: DstOptions | None
    calendar: str | None
    outside: Outside | None
    delay: Duration | None
    schedule_time: When | None
    cron_expression: str | None
    timezone: str | None


class JobChanges(_Settings, _TaskFields, total=False):
    """Any subset of the fields of `PATCH /v1/jobs/{id}`. None resets a field to its default."""


OPTION_NAMES = frozenset(JobOptions.__annotations__)


def recurrence(when: Duration) -> dict[str, Any]:
    """The field that says when a schedule runs: a cron line, an interval, or a recurrence rule."""
    if not isinstance(when, str) or is_duration(when):
        return {"every": when}
    return {"rrule" if "FREQ=" in when.upper() else "cron": when}


def job_request(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The body for a new job. Fields that are None are left out, and members of the schedule become `schedule`."""
    return _with_schedule({name: _plain(value, name) for name, value in fields.items() if value is not None})


def job_patch(changes: Mapping[str, Any]) -> dict[str, Any]:
    """The body for a change. None becomes null, except for fields that say when, which are left out. A schedule that is
    given replaces all of the old one; without one the other members of the schedule are changed one by one."""
    whole = any(changes.get(name) is not None for name in _SCHEDULE_FIELDS)
    left_out = (*_SCHEDULE_FIELDS, *_MEMBERS, "dst") if whole else _SCHEDULE_FIELDS
    kept = {name: value for name, value in changes.items() if value is not None or name not in left_out}
    body = {name: _plain(value, name) for name, value in kept.items()}
    dst = {"dst": body.pop("dst")} if "dst" in body and not whole else {}
    body = _with_schedule(body)
    return {**body, "schedule": {**body.get("schedule", {}), **dst}} if dst else body


def _with_schedule(body: dict[str, Any]) -> dict[str, Any]:
    given = [name for name in _SCHEDULE_FIELDS if name in body]
    if len(given) > 1:
        raise InvalidInput(f"{given[0]} and {given[1]} both say when", field=given[1], hint="give one of them")
    if isinstance(at := body.get("at"), float) or (isinstance(at, str) and is_duration(at)):
        body["delay"] = body.pop("at")
    members = {name.rstrip("_"): body.pop(name) for name in (*_WAYS, *_MEMBERS) if name in body}
    if members:
        schedule = body.get("schedule", {})
        body["schedule"] = members = {**(schedule if isinstance(schedule, Mapping) else {"cron": schedule}), **members}
        if "cron_expression" in body:
            members["cron"] = body.pop("cron_expression")
        if body.get("timezone") is not None:
            members["timezone"] = body.pop("timezone")
    if "dst" in body:
        _add_dst(body, body.pop("dst"))
    return body


def _add_dst(body: dict[str, Any], dst: Any) -> None:
    schedule = body.get("schedule", body.pop("cron_expression", None))
    if isinstance(schedule, str) and schedule.strip().lower() not in ("now", "manual"):
        schedule = {"cron": schedule}
    if not isinstance(schedule, dict):
        raise InvalidInput("dst needs cron or rrule", field="dst", hint="leave it out: only wall times are skipped")
    body["schedule"] = {**schedule, "dst": dst}


def _plain(value: Any, field: str) -> Any:
    """Converts times and durations to the form that the server reads. The payload is not converted."""
    if field == "payload":
        return value
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidInput(
                f"{value} has no time zone",
                code="missing_timezone",
                field=field,
                hint="use datetime.now(UTC) or .astimezone()",
            )
        return rfc3339(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {name: _plain(inner, f"{field}.{name}") for name, inner in value.items()}
    if field in ("exdates", "schedule.exdates") and not isinstance(value, str):
        return [_plain(inner, field) for inner in value]
    return value
