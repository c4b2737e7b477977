"""Messages about sinks: where changes of jobs and runs are sent."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from mainspring.wire.channels import WriteOnly
from mainspring.wire.formats import DurationIn, Name, SizeIn
from mainspring.wire.states import words

SINK_KINDS = ("webhook", "kafka", "nats", "rabbitmq", "redis")
SINK_SECRETS = ("password", "secret", "token")
OF_RUNS = (
    "created", "queued", "held", "waiting", "started", "requeued", "succeeded", "failed", "cancelled", "skipped",
)  # fmt: skip
OF_JOBS = ("created", "changed", "paused", "resumed", "cancelled", "completed", "missed")
CHANGES = (
    *(f"job.{word}" for word in OF_JOBS), *(f"run.{word}" for word in OF_RUNS),
    *(f"workflow_run.{word}" for word in OF_RUNS),
)  # fmt: skip
GROUPS = ("job", "run", "workflow_run")
TESTED = "sink.test"
SinkKindWord = Annotated[str, words("SinkKind", *SINK_KINDS)]
ChangeWord = Annotated[str, words("SinkChange", *GROUPS, *CHANGES)]
SinkUrl = Annotated[
    str, Meta(max_length=2000, description="https://, nats://, redis://, amqp:// or kafka://, without a password.")
]


class SinkRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `PUT /v1/sinks/{name}`. url, topic: where changes are sent; docs/sinks.md says which fields a kind
    has. on, queue, task, job, labels: which changes; without them all changes of the tenant. batch: how many changes
    one POST of a webhook has at most. keep, keep_size: how long, and how much of it, waits for the receiver. A secret
    field that is left out keeps its value."""

    kind: SinkKindWord
    url: SinkUrl
    topic: Name | None = None
    exchange: Name | None = None
    user: Name | None = None
    password: WriteOnly | None = None
    token: WriteOnly | None = None
    secret: WriteOnly | None = None
    batch: int | None = None
    on: list[ChangeWord] | None = None
    queue: Name | None = None
    task: Name | None = None
    job: Name | None = None
    labels: dict[str, str] | None = None
    keep: DurationIn | None = None
    keep_size: SizeIn | None = None
    description: str | None = None


class SinkView(msgspec.Struct, omit_defaults=True):
    """A sink, and how far it is. position: the number of the last change that was taken or dropped. waiting: changes
    that were not sent yet, at most 100,000. lag_s: the age of the oldest of them. dropped: changes that had waited for
    too long. error: why the last attempt failed. secrets: the names of the secret fields that are set."""

    name: str
    kind: SinkKindWord
    url: str
    version: int
    created_at: datetime
    updated_at: datetime
    updated_by: str
    paused: bool
    keep_s: float
    keep_bytes: int
    position: int
    waiting: int
    sent: int
    dropped: int
    failures: int
    secrets: list[str] = []
    topic: str | None = None
    exchange: str | None = None
    user: str | None = None
    batch: int | None = None
    on: list[ChangeWord] = []
    queue: str | None = None
    task: str | None = None
    job: str | None = None
    labels: dict[str, str] = {}
    description: str | None = None
    lag_s: float | None = None
    sent_at: datetime | None = None
    dropped_at: datetime | None = None
    error: str | None = None
    error_at: datetime | None = None


class SinkList(msgspec.Struct):
    sinks: list[SinkView]
    next: str | None = None


class SinkTested(msgspec.Struct, omit_defaults=True):
    """What became of a test event. id: of the event. error: why it was not taken."""

    sink: str
    id: str
    sent: bool
    seconds: float
    error: str | None = None
