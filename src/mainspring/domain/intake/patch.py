"""Intake of a patch: the fields that a client changes, and the stored definition, become the new definition."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET

from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.dependencies import check_dependencies, without_idle_rules
from mainspring.domain.intake.execution import limits_as_given
from mainspring.domain.intake.job_secrets import idle_references
from mainspring.domain.intake.kind_checks import KIND_FIELDS, checks_of, stored_call
from mainspring.domain.intake.rates import breaker_as_given, rates_as_given
from mainspring.domain.intake.request import (
    check_declared_by,
    define,
    read_payload,
    two_lists,
    two_policies,
)
from mainspring.domain.intake.schedule_patch import (
    is_plain,
    schedule_as_given,
    whole,
    with_members_of,
    with_members_of_event,
    with_other_line,
)
from mainspring.domain.intake.spec import concurrency_as_given, misfire_as_given, retry_as_given
from mainspring.domain.intake.task_options import fill, merged, only
from mainspring.domain.intake.unique import unique_as_given
from mainspring.domain.job import JobDefinition, Spec, plain_values
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind
from mainspring.kinds.registry import task_kinds
from mainspring.wire.execution import RunSetup
from mainspring.wire.fields import Place, fields_in
from mainspring.wire.jobs import JobPatch, JobRequest, MisfireIn, ResourceLimitsIn, RetryIn
from mainspring.wire.schedules import ScheduleChange
from mainspring.wire.tasks import DeclaredOptions

_WHEN_FIELDS = {field.name for field in fields_in(Place.REQUEST) if "schedule" in (field.name, field.means)}
_WHAT_FIELDS = {"task", "job_type", *KIND_FIELDS}
_LINES = ("schedule", "cron_expression", "cron")


def amend(
    stored: JobDefinition, patch: JobPatch, now: datetime, options: DeclaredOptions | None = None
) -> JobDefinition:
    """`stored` with the fields of `patch`. The result is checked like a new request: the stored definition becomes a
    full request again, and the fields of the patch replace its fields. `options` are the defaults of fields that the
    patch sets to null."""
    given = {name: value for name in patch.__struct_fields__ if (value := getattr(patch, name)) is not UNSET}
    if not memoryview(patch.payload):
        del given["payload"]
    for name in _WHEN_FIELDS & given.keys():
        if given[name] is None:
            del given[name]
    if "retry_policy" in given:
        if "retry" in given:
            raise two_policies()
        given["retry"] = given.pop("retry_policy")
    if "dependencies" in given:
        if "depends_on" in given:
            raise two_lists()
        given["depends_on"] = given.pop("dependencies")
    if not given:
        raise InvalidInput("the body contains no field to change", field="$", hint='such as {"priority": "high"}')
    declared_by = given.pop("declared_by", UNSET)  # it depends on the schedule that the job has in the end
    base = long_form(stored)
    if given.keys() & _WHAT_FIELDS:
        _replace_work(stored, given, base)
    if given.keys() & {"retries", "max_retries"}:
        base["retry"].max_attempts = None
    if "rate" in given:
        base["rate_limit"] = None
    for field in ("retry", "misfire", "limits"):
        if isinstance(given.get(field), RetryIn | MisfireIn | ResourceLimitsIn) and base[field] is not None:
            given[field] = merged(base[field], given[field])
    keeps_schedule = _keeps_schedule(stored.schedule, given)
    line = next((name for name in _LINES if isinstance(given.get(name), str)), None)
    if keeps_schedule:
        given.pop("schedule_type", None)
    else:
        _fill_schedule(stored.schedule, given, base)
    request = JobRequest(**(base | given))
    if options is not None:
        request = fill(request, only(options, [name for name, value in given.items() if value is None]))
    try:
        changed = define(request, now, stored.schedule)
    except InvalidInput as error:
        if error.field == "schedule.cron" and line is not None:
            error.field = line  # as the patch names it
        raise
    schedule = stored.schedule
    if not keeps_schedule:
        schedule = _changed_schedule(changed.schedule, now)
    changed = msgspec.structs.replace(changed, schedule=schedule, spec=keep_unrequested(stored.spec, changed.spec))
    changed = without_idle_rules(changed, given)
    check_dependencies(changed)
    if declared_by is UNSET:
        keeps_kind = changed.schedule.kind is stored.schedule.kind  # a workflow without a schedule is declared too
        declared_by = stored.declared_by if changed.schedule.recurring or keeps_kind else None
    elif declared_by is not None:
        declared_by = check_declared_by(declared_by, changed.schedule)
    changed = msgspec.structs.replace(changed, declared_by=declared_by)
    return changed if "name" in given else msgspec.structs.replace(changed, name=stored.name)


def _replace_work(stored: JobDefinition, given: dict[str, Any], base: dict[str, Any]) -> None:
    """Take out of `base` what the stored job runs, as far as the patch replaces it."""
    named = given.get("task", given.get("job_type"))
    base["task"] = None
    for kind in task_kinds():
        of_payload = checks_of(kind).payload_is_call
        if named != kind.name or (of_payload and read_payload(given.get("payload", msgspec.Raw())) is not None):
            base[kind.field] = None
        if of_payload and kind.field in given and stored.task == kind.name:
            base["payload"] = msgspec.Raw()  # the payload described the call that is replaced


def keep_unrequested(stored: Spec, changed: Spec) -> Spec:
    """Keep what is not part of a request: what a run knows of its workflow, and the time that a change asked for."""
    if stored.workflow is None and stored.step is None and stored.requested_at is None:
        return changed
    return msgspec.structs.replace(
        changed, workflow=stored.workflow, step=stored.step, requested_at=stored.requested_at
    )


def changes_nothing(stored: JobDefinition, changed: JobDefinition, now: datetime) -> bool:
    """Whether `changed`, which a patch has made of `stored`, says the same."""
    neutral = JobPatch(description=stored.spec.description)
    return changed == stored or changed == amend(stored, neutral, now)


def long_form(stored: JobDefinition) -> dict[str, Any]:
    """The fields of a request that describes `stored`, without its schedule."""
    spec = stored.spec
    setup = spec.setup or RunSetup()
    return {
        "job_id": stored.job_id,
        "name": stored.name,
        "task": stored.task,
        **_call_as_given(stored),
        "payload": msgspec.Raw() if stored.payload is None else msgspec.Raw(stored.payload.encode()),
        "queue": stored.queue,
        "priority": int(stored.priority),
        "timeout": spec.timeout,
        "kill_grace": setup.kill_grace,
        "env": setup.env,
        "secrets": setup.secrets,
        "limits": limits_as_given(setup.limits),
        "sandbox": setup.sandbox,
        "run_as": setup.run_as,
        "required_labels": stored.required_labels,
        "retry": retry_as_given(spec),
        "misfire": misfire_as_given(spec),
        "overlap": stored.overlap.word,
        "delivery": spec.delivery.value,
        "owner": spec.owner,
        "description": spec.description,
        "labels": spec.labels,
        "search": spec.search,
        "idempotency_key": stored.idempotency_key,
        "keep_payload": spec.keep_payload,
        "concurrency": concurrency_as_given(spec),
        "rate_limit": rates_as_given(spec.rate_limit),
        "circuit_breaker": breaker_as_given(spec.circuit_breaker),
        "unique": unique_as_given(spec.unique),
        "depends_on": spec.depends_on,
        "rule": spec.rule,
        "on_upstream_failure": spec.on_upstream_failure,
        "notify": spec.notify,
        **plain_values(spec),
    }


def _call_as_given(stored: JobDefinition) -> dict[str, Any]:
    """The call in the field of its kind, unless it is in the payload. Then it changes with the payload."""
    found = stored_call(stored.task, stored.spec.command, stored.spec.setup)
    if found is None or checks_of(found[0]).is_in_payload(found[1], stored.payload):
        return {}
    return {found[0].field: found[1]}


def _keeps_schedule(stored: Schedule, given: dict[str, Any]) -> bool:
    when = given.keys() & _WHEN_FIELDS
    return not when or (when == {"schedule_type"} and given["schedule_type"].upper() == stored.kind.value)


def _fill_schedule(stored: Schedule, given: dict[str, Any], base: dict[str, Any]) -> None:
    """Fill in what the patch keeps of the schedule: all that a schedule without every, cron or rrule does not name; the
    rule, if it sets only the zone; and all but the rule, if it sets a cron line as text."""
    schedule, zone = given.get("schedule"), given.get("timezone")
    if isinstance(schedule, ScheduleChange) and stored.kind is ScheduleKind.EVENT:
        given["schedule"] = with_members_of_event(stored, schedule)
        return
    if isinstance(schedule, ScheduleChange):
        merged_with = with_members_of(stored, schedule, zone) if stored.recurring else None
        given["schedule"] = whole(schedule) if merged_with is None else merged_with
        if merged_with is not None and schedule.timezone is UNSET:
            given.pop("timezone", None)
        return
    if not stored.recurring:
        return
    if zone is not None and given.keys() & _WHEN_FIELDS <= {"timezone", "schedule_type"}:
        if stored.kind is not ScheduleKind.EVERY or stored.calendar is not None:
            base["schedule"] = schedule_as_given(stored, zone, "timezone")
        return
    text = given.get("schedule", given.get("cron_expression", given.get("cron")))
    if not isinstance(text, str) or text.strip().lower() in ("now", "manual"):
        return
    if is_plain(stored):
        base["timezone"] = stored.timezone
        return
    if sum(name in given for name in _LINES) == 1:  # otherwise they are refused
        for name in _LINES:
            given.pop(name, None)
        given["schedule"] = with_other_line(stored, text, given.pop("timezone", None))


def _changed_schedule(changed: Schedule, now: datetime) -> Schedule:
    """The new schedule of a job. A change to `now` is a fire at the time of the change."""
    return Schedule(kind=ScheduleKind.AT, at=now) if changed.kind is ScheduleKind.NOW else changed


def names_schedule(patch: JobPatch) -> bool:
    """Whether a patch says when the job fires."""
    return any(getattr(patch, name) not in (UNSET, None) for name in _WHEN_FIELDS - {"schedule_type", "timezone"})


def change_warnings(stored: JobDefinition, changed: JobDefinition) -> list[str]:
    """What may not be meant in a change of a job."""
    return fires_once_from_now_on(stored.schedule, changed.schedule) + idle_references((changed,))


def fires_once_from_now_on(stored: Schedule, changed: Schedule) -> list[str]:
    """A warning, if a change has turned a recurring job into one that fires once."""
    if not (stored.recurring and changed.one_time):
        return []
    return [
        f"the job was recurring ({stored.words()}) and now fires once, {changed.words()}: its old schedule is gone; "
        "for one more run beside the schedule use :runNow"
    ]
