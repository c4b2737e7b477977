"""Messages about tasks: which tasks the workers offer, their parameters, and the default options of their jobs."""

from __future__ import annotations

from typing import Any

import msgspec

from mainspring.wire.field_structs import with_plain_fields
from mainspring.wire.formats import DurationIn, KeptSizeIn, Name
from mainspring.wire.jobs import ResourceLimitsIn, RetryIn
from mainspring.wire.limits import CircuitBreakerIn, ConcurrencyIn, RateLimitIn, RateText
from mainspring.wire.secrets import SecretName, Variables
from mainspring.wire.states import DeliveryWord, PriorityIn
from mainspring.wire.states import OnDeadlineWord as OnDeadlineWord
from mainspring.wire.unique import UniqueIn

# Options are sent inside the schema of the task's parameters. A server that does not know the keyword ignores it.
OPTIONS_KEYWORD = "x-mainspring-options"
KIND_KEYWORD = "x-mainspring-kind"  # the package of a kind of task, which servers need too


@with_plain_fields("given", after="timeout")
class DeclaredOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """The default options that a task declares for its jobs. A field in the request for a job takes precedence. delay:
    for a job that does not say when it runs."""

    queue: Name | None = None
    priority: PriorityIn | None = None
    timeout: DurationIn | None = None
    kill_grace: DurationIn | None = None
    retry: RetryIn | None = None
    delivery: DeliveryWord | None = None
    env: Variables | None = None
    secrets: list[SecretName] | None = None
    limits: ResourceLimitsIn | None = None
    required_labels: dict[str, str] | None = None
    keep_payload: KeptSizeIn | None = None
    concurrency: bool | int | ConcurrencyIn | list[ConcurrencyIn] | None = None
    rate_limit: bool | RateText | RateLimitIn | list[RateLimitIn] | None = None
    circuit_breaker: bool | CircuitBreakerIn | None = None
    unique: bool | UniqueIn | None = None
    delay: DurationIn | None = None
    search: list[str] | None = None


class TaskView(msgspec.Struct):
    """A task that live workers offer. payload_schema: the JSON Schema of its payloads; None accepts any payload.
    options: the default options of its jobs; durations are in seconds, sizes in bytes. left_out: the list shows
    neither, because it would be too large."""

    task: str
    queues: list[str]
    workers: int
    payload_schema: dict[str, Any] | None = None
    options: DeclaredOptions | None = None
    left_out: bool = False


class TaskList(msgspec.Struct, omit_defaults=True):
    """more: there are tasks that the list does not show, because there are too many."""

    tasks: list[TaskView]
    more: bool = False
