"""Messages about tasks: what the workers offer, what each takes, and what each declares about its jobs."""

from __future__ import annotations

from typing import Any

import msgspec

from mainspring.wire.field_structs import with_plain_fields
from mainspring.wire.jobs import DurationIn, Name, ResourceLimitsIn, RetryIn

# Options travel inside the schema that declares the task's parameters: a server that does not know the word ignores it.
OPTIONS_KEYWORD = "x-mainspring-options"


@with_plain_fields("given", after="timeout")
class DeclaredOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a task declares about its jobs. It holds where the request that makes a job says nothing."""

    queue: Name | None = None
    priority: str | int | None = None
    timeout: DurationIn | None = None
    kill_grace: DurationIn | None = None
    retry: RetryIn | None = None
    delivery: str | None = None
    env: dict[str, str] | None = None
    limits: ResourceLimitsIn | None = None
    required_labels: dict[str, str] | None = None


class TaskView(msgspec.Struct):
    """A task that live workers offer. payload_schema: the JSON Schema that payloads are checked by; None: anything.
    options: what holds for its jobs where the request says nothing; durations are in seconds, sizes in bytes."""

    task: str
    queues: list[str]
    workers: int
    payload_schema: dict[str, Any] | None = None
    options: DeclaredOptions | None = None


class TaskList(msgspec.Struct):
    tasks: list[TaskView]
