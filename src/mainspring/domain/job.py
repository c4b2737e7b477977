"""The definition of a job, as intake produces it and the store saves it."""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Any

import msgspec

from mainspring.domain.errors import Unreadable
from mainspring.domain.fairness import AGING_STEP
from mainspring.domain.limits import CircuitBreaker, ConcurrencyLimit, RateLimit, Slot, slots_of
from mainspring.domain.payload_keys import found_values
from mainspring.domain.retry import DEFAULT_RETRY, RetryPolicy
from mainspring.domain.schedules.misfire import DEFAULT_MISFIRE, MisfirePolicy
from mainspring.domain.schedules.schedule import NOW, Schedule
from mainspring.kernel.config import DEFAULT_KEPT_PAYLOAD, DEFAULT_QUEUE
from mainspring.kernel.ids import is_uuid7
from mainspring.wire.execution import RunSetup
from mainspring.wire.field_structs import with_plain_fields
from mainspring.wire.fields import PLAIN_NAMES, PlainValues
from mainspring.wire.rules import JobNotify
from mainspring.wire.unique import Unique

DEFAULT_TIMEOUT = 3600.0
NO_LONGER_DECLARED = "no longer declared"  # why a job is paused


class Priority(IntEnum):
    """Waiting low and normal runs catch up with higher ones over time. They never overtake critical ones."""

    LOW = 0
    NORMAL = 1
    HIGH = 2
    CRITICAL = 3

    @property
    def word(self) -> str:
        return self.name.lower()


class Overlap(IntEnum):
    """What happens when a job fires while another run of it has not ended."""

    SKIP = 0
    ALLOW = 1
    QUEUE = 2
    CANCEL_PREVIOUS = 3

    @property
    def word(self) -> str:
        return self.name.lower()


# Why a fire is SKIPPED under overlap skip.
STILL_ALIVE = "overlap: an earlier run of this job was still alive"
DUE_TOGETHER = "overlap: several fires of this job were due together, and the first of them was run"


# Why a run is CANCELLED under overlap cancel_previous.
REPLACED = "overlap: a later fire of this job replaced it"


class Delivery(StrEnum):
    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"


class StepOf(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the run of a step knows about its workflow. place: the place of the step in the definition. uses: the steps
    to whose results its payload refers, and the numbers of their runs in the workflow run. index: the index of a member
    of a map."""

    place: int
    uses: dict[str, int] | None = None
    index: int | None = None


class CallbackOf(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step whose service answers later: how long it waits for that, and what comes then."""

    timeout: float | None = None
    on_timeout: str = "fail"


@with_plain_fields("value", after="setup")
class Spec(PlainValues, msgspec.Struct, frozen=True, omit_defaults=True):
    """The part of a definition that is stored as JSON, and as NULL if all of it is default.

    keep_payload: up to how many bytes the payload stays with a run that has succeeded. More is set when it is stored.
    overlap: that of a one-time job, because its run is all that is left of it. repeat: in a run with an idempotency key
    of its own, see domain/run_key.py. line: the slots that its runs need, see domain/limits.py. boost: how many seconds
    its priority moves a run forward in a line. depends_on, rule, on_upstream_failure: see domain/dependencies.py.
    workflow: the version of the definition that a run of a workflow is fired with. step: of the run of a step.
    requested_at: the time that a change asked for, if it had passed by then: the job fired for the time of the change.
    search, found_by: the paths by which runs are found, and the values that the payload has there.
    """

    timeout: float = DEFAULT_TIMEOUT
    retry: RetryPolicy = DEFAULT_RETRY
    misfire: MisfirePolicy = DEFAULT_MISFIRE
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    command: str | list[str] | None = None
    setup: RunSetup | None = None
    owner: str | None = None
    description: str | None = None
    labels: dict[str, str] | None = None
    idempotency_key: str | None = None
    keep_payload: int = DEFAULT_KEPT_PAYLOAD
    overlap: Overlap = Overlap.SKIP
    repeat: str | None = None
    concurrency: list[ConcurrencyLimit] | None = None
    line: list[Slot] | None = None
    boost: float | None = None
    rate_limit: list[RateLimit] | None = None
    circuit_breaker: CircuitBreaker | None = None
    unique: Unique | None = None
    depends_on: list[str] | None = None
    rule: str | None = None
    on_upstream_failure: str | None = None
    notify: list[JobNotify] | None = None
    workflow: int | None = None
    step: StepOf | None = None
    callback: CallbackOf | None = None
    requested_at: datetime | None = None
    search: list[str] | None = None
    found_by: dict[str, str] | None = None


DEFAULT_SPEC = Spec()
_encode_spec = msgspec.json.Encoder().encode
_decode_spec = msgspec.json.Decoder(Spec).decode


def spec_to_text(spec: Spec) -> str | None:
    if spec is DEFAULT_SPEC:
        return None
    text = _encode_spec(spec).decode()
    return None if text == "{}" else text


def spec_from_text(text: str | None) -> Spec:
    """Raises Unreadable."""
    try:
        return DEFAULT_SPEC if text is None else _decode_spec(text)
    except msgspec.DecodeError as error:
        raise unreadable("settings", error) from None


def spec_to_show(text: str | None) -> tuple[Spec, str | None]:
    """The spec, and None. If it cannot be read: the default one, and why."""
    try:
        return spec_from_text(text), None
    except Unreadable as problem:
        return DEFAULT_SPEC, str(problem)


def unreadable(what: str, error: msgspec.DecodeError) -> Unreadable:
    return Unreadable(
        f"its stored {what} cannot be read: {error}", code="unreadable",
        hint="cancel it, or use a server of the version that stored it",
    )  # fmt: skip


def plain_values(spec: Spec) -> dict[str, Any]:
    """The plain fields of `spec` by name. None means the default."""
    return {name: getattr(spec, name) for name in PLAIN_NAMES}


class JobDefinition(msgspec.Struct, frozen=True):
    """Everything about a job that its owner sets."""

    task: str
    name: str | None = None
    payload: str | None = None
    queue: str = DEFAULT_QUEUE
    priority: int = Priority.NORMAL
    schedule: Schedule = NOW
    overlap: Overlap = Overlap.SKIP
    spec: Spec = DEFAULT_SPEC
    job_id: str | None = None
    idempotency_key: str | None = None
    required_labels: dict[str, str] | None = None
    declared_by: str | None = None


ONE_AFTER_ANOTHER = (Overlap.QUEUE, Overlap.CANCEL_PREVIOUS)
_SKIP = Overlap.SKIP  # access to an enum member takes 0.1 µs
_SECONDS_PER_LEVEL = AGING_STEP.total_seconds()
_CRITICAL_BOOST = 100 * 366 * 86400.0


def has_limits(definition: JobDefinition) -> bool:
    """Whether its runs are HELD until a limit has room."""
    spec = definition.spec
    return (
        spec.concurrency is not None
        or spec.rate_limit is not None
        or spec.circuit_breaker is not None
        or definition.overlap in ONE_AFTER_ANOTHER
    )


def stored_spec(definition: JobDefinition, job_id: str | None = None, line: list[Slot] | None = None) -> str | None:
    """The spec of a job as it is stored. `job_id`: the id of the job if it was generated. `line`: the slots that its
    runs need, if they are known."""
    spec = definition.spec
    rule = definition.overlap
    if rule is not _SKIP and not definition.schedule.one_time:
        rule = _SKIP
    if has_limits(definition):
        line = line or line_of(definition, job_id)
        spec = msgspec.structs.replace(spec, overlap=rule, line=line, boost=boost_in(line, definition.priority))
    elif spec.overlap is not rule or spec.line is not None:
        spec = msgspec.structs.replace(spec, overlap=rule, line=None, boost=None)
    if spec.search is not None:
        spec = msgspec.structs.replace(spec, found_by=found_values(definition.payload, spec.search))
    return spec_to_text(spec)


def line_of(definition: JobDefinition, job_id: str | None = None) -> list[Slot]:
    """The slots that the runs of the job need."""
    own_id = definition.job_id if job_id is None else job_id
    if own_id is None:
        raise ValueError("the slots of a job depend on its id")
    return slots_of(
        definition.spec.concurrency or (),
        definition.spec.rate_limit or (),
        definition.spec.circuit_breaker,
        task=definition.task,
        job_id=own_id,
        lasting=definition.schedule.recurring or not is_uuid7(own_id),
        payload=definition.payload,
        labels=definition.spec.labels,
        one_after_another=definition.overlap in ONE_AFTER_ANOTHER,
    )


def boost_in(line: list[Slot], priority: int) -> float | None:
    """How many seconds a priority moves a run forward in its line. None if it does not."""
    if not priority:
        return None
    for slot in line:
        if slot.strict:
            return None
    return _CRITICAL_BOOST if priority == Priority.CRITICAL else priority * _SECONDS_PER_LEVEL
