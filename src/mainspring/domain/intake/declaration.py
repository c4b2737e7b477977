"""Declarations: workers declare the payload schema of a task and the default options of its jobs.

`defined` and `amended` are intake with the declarations of the known tasks. The server and the test box of the SDK
share this code.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from mainspring.domain.dependencies import has_references
from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import InvalidInput, MainspringError
from mainspring.domain.event_payloads import payload_with_an_event
from mainspring.domain.intake.execution import limits_as_given
from mainspring.domain.intake.kind_checks import unknown_kind
from mainspring.domain.intake.limits import per_task
from mainspring.domain.intake.patch import amend
from mainspring.domain.intake.rates import breaker_as_given, rates_as_given
from mainspring.domain.intake.request import define, dependencies_as_depends_on, retry_policy_as_retry
from mainspring.domain.intake.signature import Signature, read_signature
from mainspring.domain.intake.spec import concurrency_as_given, retry_in_full
from mainspring.domain.intake.task_options import fill, with_delay
from mainspring.domain.intake.unique import check_time, check_unchanged, unique_as_given
from mainspring.domain.job import JobDefinition, Priority, plain_values
from mainspring.domain.limits import CircuitBreaker
from mainspring.domain.workflows.flow import SERVER_TASKS
from mainspring.kinds.registry import kind_of_task
from mainspring.wire.execution import RunSetup
from mainspring.wire.jobs import JobPatch, JobRequest, ResourceLimitsIn, RetryIn
from mainspring.wire.limits import CircuitBreakerIn
from mainspring.wire.tasks import KIND_KEYWORD, OPTIONS_KEYWORD, DeclaredOptions

_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)  # options do not depend on the time


class UnknownKind(msgspec.Struct, frozen=True):
    """A kind of task that workers offer and that this server does not have."""

    name: str
    package: str

    def refuse(self) -> None:
        raise unknown_kind(self.name, self.package, "task")


class TaskDeclaration(msgspec.Struct, frozen=True):
    """What the newest worker declares about a task. Without a signature the task accepts any payload. unknown: it is of
    a kind that this server does not know, so its jobs cannot be checked and are refused."""

    signature: Signature | None = None
    options: DeclaredOptions | None = None
    unknown: UnknownKind | None = None

    def check(self, payload: str | None) -> None:
        """Raise InvalidInput if the task does not accept this payload (JSON text)."""
        if self.unknown is not None:
            self.unknown.refuse()
        if self.signature is not None:
            self.signature.check(payload)

    def check_known(self, payload: Mapping[str, Any], late: Collection[str]) -> None:
        """Check a payload in which the values of the parameters `late` are not known yet."""
        if self.unknown is not None:
            self.unknown.refuse()
        if self.signature is not None:
            self.signature.check_known(payload, late)


def defined(request: JobRequest, now: datetime, known: Mapping[str, TaskDeclaration]) -> JobDefinition:
    """The definition that `request` describes. The options of its task are the defaults. Raises a MainspringError that
    names the field, also if the payload does not match the task's signature."""
    definition = define(request, now)
    if definition.task in SERVER_TASKS:
        raise InvalidInput(
            f"the task {definition.task} is reserved for workflows", field="task", hint="see POST /v1/workflows"
        )
    declaration = known.get(definition.task)
    if declaration is not None and not has_references(definition):
        declaration.check(payload_with_an_event(definition))
    if declaration is None or declaration.options is None:
        if definition.spec.unique is not None:
            check_time(definition)
        return definition
    options = declaration.options
    if options.unique is not None and not definition.schedule.one_time:
        options = msgspec.structs.replace(options, unique=None)  # a recurring job is not unique
    try:
        filled = fill(dependencies_as_depends_on(retry_policy_as_retry(request)), options)
        definition = define(with_delay(filled, options), now)
        check_time(definition)
        return definition
    except InvalidInput as error:  # the request is valid without the options
        hint = f"some values are defaults that {definition.task} declares"
        hint = f"{error.hint}; {hint}" if error.hint else hint
        raise InvalidInput(
            error.detail, code=error.code, field=error.field, expected=error.expected, hint=hint
        ) from None


def amended(
    stored: JobDefinition, patch: JobPatch, now: datetime, known: Mapping[str, TaskDeclaration]
) -> JobDefinition:
    """`stored` with the fields of `patch`. The options of the task apply only to fields that `patch` sets to null to
    get the default. A change of the description must not move a job to another queue."""
    changed = amend(stored, patch, now)
    if taken := SERVER_TASKS & {stored.task, changed.task}:
        raise InvalidInput(
            f"the task {min(taken)} is reserved for workflows", code="is_a_workflow", field="task",
            hint="change a workflow with PATCH /v1/workflows/{workflow_id}",
        )  # fmt: skip
    declaration = known.get(changed.task)
    if declaration is None:
        check_unchanged(stored, changed)
        return changed
    if (changed.task != stored.task or changed.payload != stored.payload) and not has_references(changed):
        declaration.check(payload_with_an_event(changed))
    if declaration.options is not None:
        changed = amend(stored, patch, now, declaration.options)
    check_unchanged(stored, changed)
    return changed


def read_declaration(task: str, schema: object) -> TaskDeclaration | None:
    """What `schema` declares. None if nothing in it can be read."""
    if not isinstance(schema, dict):
        return None
    rest = {name: value for name, value in schema.items() if name not in (OPTIONS_KEYWORD, KIND_KEYWORD)}
    signature, options = read_signature(task, rest) if rest else None, options_in(schema)
    package = schema.get(KIND_KEYWORD)
    unknown = None
    if isinstance(package, str) and _PACKAGE.match(package) and kind_of_task(task) is None:
        unknown = UnknownKind(task, package)
    if signature is None and options is None and unknown is None:
        return None
    return TaskDeclaration(signature, options, unknown)


def options_in(schema: Mapping[str, Any]) -> DeclaredOptions | None:
    """The options that `schema` declares. None if there are none, or if they are invalid."""
    try:
        return read_options(schema.get(OPTIONS_KEYWORD))
    except MainspringError:
        return None


def read_options(given: object) -> DeclaredOptions | None:
    """Options from decoded JSON, with durations and sizes as numbers. None if it has none. Raises MainspringError."""
    try:
        options = msgspec.convert(given, DeclaredOptions | None)
    except msgspec.ValidationError as error:
        raise InvalidInput(str(error), field=OPTIONS_KEYWORD) from None
    return None if options is None else plain_options(JobRequest(**_fields(options)))


def plain_options(given: JobRequest) -> DeclaredOptions | None:
    """The options among the fields of `given`, checked like the fields of a job. Raises MainspringError."""
    definition = define(msgspec.structs.replace(given, task="task"), _ANY_TIME)
    spec, setup = definition.spec, definition.spec.setup or RunSetup()
    sets_attempts = (given.retries, given.max_retries, given.retry and given.retry.max_attempts) != (None, None, None)
    options = DeclaredOptions(
        queue=given.queue,
        priority=None if given.priority is None else Priority(definition.priority).word,
        timeout=None if given.timeout is None else spec.timeout,
        kill_grace=setup.kill_grace,
        retry=_only_given(given.retry or RetryIn(), retry_in_full(spec), ["max_attempts"] if sets_attempts else ()),
        delivery=None if given.delivery is None else spec.delivery.value,
        env=setup.env,
        secrets=setup.secrets,
        limits=_only_given(given.limits or ResourceLimitsIn(), limits_as_given(setup.limits) or ResourceLimitsIn()),
        required_labels=definition.required_labels,
        keep_payload=None if given.keep_payload is None else spec.keep_payload,
        concurrency=per_task(concurrency_as_given(spec), given.concurrency),
        rate_limit=per_task(rates_as_given(spec.rate_limit), given.rate_limit, "rate_limit"),
        circuit_breaker=_breaker_of_task(spec.circuit_breaker),
        unique=unique_as_given(spec.unique),
        delay=None if given.delay is None else parse_duration(given.delay, "delay"),
        search=spec.search,
        **plain_values(spec),
    )
    return None if options == DeclaredOptions() else options


def _breaker_of_task(breaker: CircuitBreaker | None) -> CircuitBreakerIn | None:
    if (given := breaker_as_given(breaker)) is None:
        return None
    per_task([given], None, "circuit_breaker")
    return msgspec.structs.replace(given, per="task")


def _only_given(given: Any, full: Any, also: Collection[str] = ()) -> Any:
    """The members of `full` that are set in `given` or named in `also`. None if there are none."""
    names = {name for name in given.__struct_fields__ if getattr(given, name) is not None}.union(also)
    return type(full)(**{name: getattr(full, name) for name in names}) if names else None


def _fields(options: DeclaredOptions) -> dict[str, Any]:
    return {name: getattr(options, name) for name in options.__struct_fields__}
