"""What a worker declares about a task: what its payload must look like, and the options of its jobs.

One place for the server and for a box in a test: `defined` and `amended` are the intake of requests whose task may be
known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from mainspring.domain.errors import InvalidInput, MainspringError
from mainspring.domain.intake.execution import limits_as_given
from mainspring.domain.intake.request import amend, define
from mainspring.domain.intake.signature import Signature, read_signature
from mainspring.domain.intake.spec import retry_in_full
from mainspring.domain.intake.task_options import fill
from mainspring.domain.job import JobDefinition, Priority, plain_values
from mainspring.wire.execution import RunSetup
from mainspring.wire.jobs import JobPatch, JobRequest, ResourceLimitsIn, RetryIn
from mainspring.wire.tasks import OPTIONS_KEYWORD, DeclaredOptions

_WHENEVER = datetime(2000, 1, 1, tzinfo=UTC)  # options say nothing about time


class Declaration(msgspec.Struct, frozen=True):
    """A task as the newest worker knows it. Without a signature it takes anything."""

    signature: Signature | None = None
    options: DeclaredOptions | None = None

    def check(self, payload: str | None) -> None:
        """Refuse a payload (JSON text) that the task does not take."""
        if self.signature is not None:
            self.signature.check(payload)


def defined(request: JobRequest, now: datetime, known: Mapping[str, Declaration]) -> JobDefinition:
    """The definition that `request` describes, with the options of its task where it says nothing; raises InvalidInput
    and friends naming the field, also when the payload does not fit the task."""
    definition = define(request, now)
    declaration = known.get(definition.task)
    if declaration is None:
        return definition
    declaration.check(definition.payload)
    if declaration.options is None:
        return definition
    try:
        return define(fill(request, declaration.options), now)
    except InvalidInput as error:  # the request alone was right
        hint = f"{definition.task} declares what the request leaves open"
        hint = f"{error.hint}; {hint}" if error.hint else hint
        raise InvalidInput(
            error.detail, code=error.code, field=error.field, expected=error.expected, hint=hint
        ) from None


def amended(stored: JobDefinition, patch: JobPatch, now: datetime, known: Mapping[str, Declaration]) -> JobDefinition:
    """`stored` with the fields of `patch`. Options hold at creation: here they come in where `patch` asks for a default
    (null), and nowhere else, so that a change of the description moves no job to another queue."""
    changed = amend(stored, patch, now)
    declaration = known.get(changed.task)
    if declaration is None:
        return changed
    if changed.task != stored.task or changed.payload != stored.payload:
        declaration.check(changed.payload)
    return changed if declaration.options is None else amend(stored, patch, now, declaration.options)


def read_declaration(task: str, schema: object) -> Declaration | None:
    """What `schema` declares; None when it says nothing that we understand."""
    if not isinstance(schema, dict):
        return None
    rest = {name: value for name, value in schema.items() if name != OPTIONS_KEYWORD}
    signature, options = read_signature(task, rest) if rest else None, options_in(schema)
    return None if signature is None and options is None else Declaration(signature, options)


def options_in(schema: Mapping[str, Any]) -> DeclaredOptions | None:
    """The options that `schema` declares; None when there are none, or none that can be read."""
    try:
        return read_options(schema.get(OPTIONS_KEYWORD))
    except MainspringError:
        return None


def read_options(given: object) -> DeclaredOptions | None:
    """Options as they came (decoded JSON), in plain numbers and words; None for none. Raises InvalidInput or so."""
    try:
        options = msgspec.convert(given, DeclaredOptions | None)
    except msgspec.ValidationError as error:
        raise InvalidInput(str(error), field=OPTIONS_KEYWORD) from None
    return None if options is None else plain_options(JobRequest(**_fields(options)))


def plain_options(given: JobRequest) -> DeclaredOptions | None:
    """The options among the fields of `given`, read as those of a job are read; raises InvalidInput and friends."""
    definition = define(msgspec.structs.replace(given, task="task"), _WHENEVER)
    spec, setup = definition.spec, definition.spec.setup or RunSetup()
    says_how_often = (given.retries, given.max_retries, given.retry and given.retry.max_attempts) != (None, None, None)
    options = DeclaredOptions(
        queue=given.queue,
        priority=None if given.priority is None else Priority(definition.priority).word,
        timeout=None if given.timeout is None else spec.timeout,
        kill_grace=setup.kill_grace,
        retry=_said(given.retry or RetryIn(), retry_in_full(spec), ["max_attempts"] if says_how_often else ()),
        delivery=None if given.delivery is None else spec.delivery.value,
        env=setup.env,
        limits=_said(given.limits or ResourceLimitsIn(), limits_as_given(setup.limits) or ResourceLimitsIn()),
        required_labels=definition.required_labels,
        **plain_values(spec),
    )
    return None if options == DeclaredOptions() else options


def _said(given: Any, full: Any, also: Collection[str] = ()) -> Any:
    """Those members of `full` that `given` speaks of; None when that is none of them."""
    said = {name for name in given.__struct_fields__ if getattr(given, name) is not None}.union(also)
    return type(full)(**{name: getattr(full, name) for name in said}) if said else None


def _fields(options: DeclaredOptions) -> dict[str, Any]:
    return {name: getattr(options, name) for name in options.__struct_fields__}
