"""Intake of a whole request: the full form and the short forms become a definition. Anything else is refused."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from mainspring.domain.errors import InvalidInput, PayloadTooLarge
from mainspring.domain.intake.dependencies import check_dependencies
from mainspring.domain.intake.execution import read_required_labels
from mainspring.domain.intake.kind_checks import KINDS_BY_TASK, NO_CALLS, checks_of, given_calls
from mainspring.domain.intake.limits import check_keys
from mainspring.domain.intake.schedule import read_schedule, says_when
from mainspring.domain.intake.spec import read_spec
from mainspring.domain.intake.times import parse_time
from mainspring.domain.intake.unique import check_unique
from mainspring.domain.job import (
    DEFAULT_SPEC,
    ONE_AFTER_ANOTHER,
    JobDefinition,
    Overlap,
    Priority,
    Spec,
)
from mainspring.domain.schedules.schedule import NOW, Schedule
from mainspring.domain.texts import check_line, meant, shown
from mainspring.kernel.config import DEFAULT_QUEUE, MAX_PAYLOAD_BYTES
from mainspring.kinds.registry import TaskKind, task_kinds
from mainspring.wire.jobs import JobRequest

__all__ = ["define", "parse_priority", "parse_time"]

_KINDS = task_kinds()
_PRIORITIES = {priority.word: priority for priority in Priority} | {str(int(level)): level for level in Priority}
# Module constants, because access to an enum member takes 0.1 µs and each submission needs two.
_NORMAL, _SKIP, _ALLOW = Priority.NORMAL, Overlap.SKIP, Overlap.ALLOW


def define(request: JobRequest, now: datetime, before: Schedule | None = None) -> JobDefinition:
    """The definition that `request` describes. Raises a MainspringError that names the field. `before`: the schedule
    that the job has so far."""
    if request.retry_policy is not None:
        request = retry_policy_as_retry(request)
    if request.dependencies is not None:
        request = dependencies_as_depends_on(request)
    payload = read_payload(request.payload)
    task, kind, call = _what(request, payload)
    name, queue, job_id, priority, overlap = (
        request.name, request.queue, request.job_id, request.priority, request.overlap,
    )  # fmt: skip
    if name is not None:
        check_line(name, "name")
    if queue is not None:
        check_line(queue, "queue")
    if job_id is not None:
        _check_job_id(job_id)
    schedule = read_schedule(request, now, before) if says_when(request) else NOW
    spec = read_spec(request, kind, call)
    usual = _ALLOW if schedule.event is not None else _SKIP  # each event starts a run
    rule = usual if overlap is None else _overlap(overlap)
    if spec.concurrency is not None or spec.rate_limit is not None or spec.circuit_breaker is not None:
        _check_limits(spec, payload, rule)
    definition = JobDefinition(
        task=task,
        name=job_id if name is None else name,
        payload=payload,
        queue=DEFAULT_QUEUE if queue is None else queue,
        priority=_NORMAL if priority is None else parse_priority(priority),
        schedule=schedule,
        overlap=rule,
        spec=spec,
        job_id=job_id,
        idempotency_key=request.idempotency_key,
        required_labels=None if request.required_labels is None else read_required_labels(request.required_labels),
        declared_by=None if request.declared_by is None else check_declared_by(request.declared_by, schedule),
    )
    if spec.unique is not None:
        check_unique(definition)
    # With `before` the job may keep its schedule, and it is checked with that. Most jobs have nothing to check.
    if before is None and (spec is not DEFAULT_SPEC or schedule is not NOW):
        check_dependencies(definition)
    return definition


def dependencies_as_depends_on(request: JobRequest) -> JobRequest:
    """`dependencies` is another name of `depends_on`."""
    if request.dependencies is None:
        return request
    if request.depends_on is not None:
        raise two_lists()
    return msgspec.structs.replace(request, depends_on=request.dependencies, dependencies=None)


def two_lists() -> InvalidInput:
    return InvalidInput(
        "depends_on and dependencies are both given", field="dependencies", hint="they mean the same; give one"
    )


def _check_limits(spec: Spec, payload: str | None, rule: Overlap) -> None:
    """What the limits of a job mean together, and in its payload."""
    if spec.concurrency is not None:
        check_keys([limit.key for limit in spec.concurrency], payload, spec.labels)
    if spec.rate_limit is not None:
        check_keys([rate.key for rate in spec.rate_limit], payload, spec.labels, "rate_limit")
    if spec.concurrency is None or not spec.concurrency[0].strict:  # a strict limit is alone
        return
    if rule in ONE_AFTER_ANOTHER:
        raise InvalidInput(
            f"strict order does not go with overlap {rule.word}", field="concurrency.order",
            hint="overlap queue starts the runs of a job in order; leave one of them out",
        )  # fmt: skip
    if spec.rate_limit is not None or spec.circuit_breaker is not None:
        other = "rate_limit" if spec.rate_limit is not None else "circuit_breaker"
        raise InvalidInput(
            f"strict order does not go with {other}", field=other,
            hint=f"a failing run keeps its place in strict order; leave out the order or {other}",
        )  # fmt: skip


def retry_policy_as_retry(request: JobRequest) -> JobRequest:
    """`retry_policy` is another name of `retry`."""
    if request.retry_policy is None:
        return request
    if request.retry is not None:
        raise two_policies()
    return msgspec.structs.replace(request, retry=request.retry_policy, retry_policy=None)


def two_policies() -> InvalidInput:
    return InvalidInput(
        "retry and retry_policy are both given", field="retry_policy", hint="they mean the same; give one"
    )


def _check_job_id(job_id: str) -> None:
    check_line(job_id, "job_id")
    if job_id in (".", ".."):
        raise InvalidInput(
            f"{job_id!r} cannot be a job_id: clients remove the path segments . and .. from URLs",
            field="job_id",
            expected="letters, digits, and . _ -, but not . or .. alone",
            hint="choose another job_id",
        )


def check_declared_by(application: str, schedule: Schedule) -> str:
    check_line(application, "declared_by")
    if schedule.one_time:
        raise InvalidInput(
            "a job that runs once is not declared by an application", field="declared_by",
            hint="leave it out, or give the job a cron expression or an interval",
        )  # fmt: skip
    return application


def parse_priority(value: str | int) -> Priority:
    if isinstance(value, str):
        priority = _PRIORITIES.get(value.lower())
    else:
        priority = None if isinstance(value, bool) or not 0 <= value <= 3 else Priority(value)
    if priority is None:
        raise InvalidInput(
            f"{shown(value)} is not a priority", field="priority", expected="low, normal, high, critical, or 0 to 3",
            hint=meant(value.lower(), _PRIORITIES, "") or None if isinstance(value, str) else None,
        )  # fmt: skip
    return priority


def _what(request: JobRequest, payload: str | None) -> tuple[str, TaskKind | None, Any]:
    """The name of the task, and its kind and call if it is not a task of an application."""
    task, field = request.task, "task"
    if request.job_type is not None:
        if task is not None and task != request.job_type:
            raise InvalidInput(
                "task and job_type name two tasks", field="job_type", hint="they mean the same; give one"
            )
        task, field = request.job_type, "job_type"
    if (calls := given_calls(request)) != NO_CALLS:
        return _given_call(calls, task, field, payload)
    if task is None:
        task, field = (request.job_id, "job_id") if request.name is None else (request.name, "name")
        if task is None:
            raise InvalidInput(
                "nothing says what to run", field="task", expected="task, job_type, command, or a name that is a task's"
            )
    check_line(task, field)
    if (kind := KINDS_BY_TASK.get(task)) is None:
        return task, None, None
    return task, kind, checks_of(kind).read_payload(payload)


def _given_call(calls: tuple[Any, ...], task: str | None, field: str, payload: str | None) -> tuple[str, TaskKind, Any]:
    """What a request runs that has the field of a kind."""
    kind, call = next(pair for pair in zip(_KINDS, calls, strict=True) if pair[1] is not None)
    checks = checks_of(kind)
    if task is not None and task != kind.name:
        raise InvalidInput(checks.other_task, field=kind.field, hint=f"leave out {field}")
    if calls.count(None) < len(calls) - 1:
        other = [one for one, given in zip(_KINDS, calls, strict=True) if given is not None][1]
        raise InvalidInput(
            f"{kind.field} and {other.field} cannot be combined", field=other.field, hint="give one of them"
        )
    return kind.name, kind, checks.read(call, payload)


def read_payload(raw: msgspec.Raw) -> str | None:
    try:
        text: str = str(raw, "utf-8").strip()
    except UnicodeDecodeError:
        raise InvalidInput("the payload is not UTF-8", code="invalid_json", field="payload") from None
    # A character has at most four bytes, so short payloads need not be encoded.
    if len(text) > MAX_PAYLOAD_BYTES // 4 and (size := len(text.encode())) > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(
            f"the payload has {size} bytes", field="payload", expected=f"at most {MAX_PAYLOAD_BYTES} bytes",
            hint="store it elsewhere and send a reference",
        )  # fmt: skip
    if text[:1] != "{":
        if text in ("", "null"):
            return None
        raise InvalidInput(
            "the payload is not an object", field="payload", expected='a JSON object such as {"a": 1}',
            hint="write the object itself, not a text that contains it" if text[:2] == '"{' else None,
        )  # fmt: skip
    return text


def _overlap(word: str) -> Overlap:
    match word.lower():
        case "skip":
            return Overlap.SKIP
        case "allow":
            return Overlap.ALLOW
        case "queue":
            return Overlap.QUEUE
        case "cancel_previous":
            return Overlap.CANCEL_PREVIOUS
        case _:
            raise InvalidInput(
                f"{shown(word)} is not an overlap rule",
                field="overlap",
                expected="skip, queue, allow or cancel_previous",
            )
