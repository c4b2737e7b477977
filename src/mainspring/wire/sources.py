"""Messages about sources: what connectors read from brokers, and what becomes of it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from mainspring.wire.states import words

MOST_MESSAGES = 1000  # in a request
MOST_DEAD = 1000  # that are kept for each source
LONGEST_DEAD = 16 * 1024  # characters of a dead message
LONGEST_PROBLEM = 500

BROKERS = ("kafka", "nats", "rabbitmq", "redis")
BrokerWord = Annotated[str, words("Broker", *BROKERS)]
SourceName = Annotated[str, Meta(min_length=1, max_length=100)]
PartName = Annotated[str, Meta(max_length=300)]
MessageId = Annotated[str, Meta(min_length=1, max_length=300)]
Offset = Annotated[int, Meta(ge=-1, le=2**63 - 1)]


class DeadReport(msgspec.Struct, forbid_unknown_fields=True):
    """Why a message cannot become an event or a job, and what it was, as text."""

    reason: Annotated[str, Meta(min_length=1, max_length=LONGEST_PROBLEM)]
    value: Annotated[str, Meta(max_length=LONGEST_DEAD)] = ""


class SourceMessage(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A message of a broker: exactly one of event, job and dead. id: under which the broker may deliver it again.
    offset: its place in the partition, where the broker has offsets."""

    id: MessageId | None = None
    offset: Offset | None = None
    event: Annotated[msgspec.Raw, Meta(description="As the body of POST /v1/events.")] = msgspec.Raw()
    job: Annotated[msgspec.Raw, Meta(description="As the body of POST /v1/jobs.")] = msgspec.Raw()
    dead: DeadReport | None = None


class SourceTake(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `POST /v1/sources/{name}:take`. after: the offset that is stored, if there is one. offset: the one to
    store if there are no messages. settled: ids of messages that the broker will not deliver again. lag: how many
    messages wait at the broker. problem: what the connector cannot do now."""

    kind: BrokerWord
    connector: Annotated[str, Meta(max_length=200)]
    partition: PartName = ""
    after: Offset | None = None
    offset: Offset | None = None
    messages: Annotated[list[SourceMessage], Meta(max_length=MOST_MESSAGES)] = []
    settled: Annotated[list[MessageId], Meta(max_length=MOST_MESSAGES)] = []
    lag: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    problem: Annotated[str, Meta(max_length=LONGEST_PROBLEM)] | None = None


class SourceTaken(msgspec.Struct, omit_defaults=True):
    """taken: how many messages were taken now. repeated: how many were taken before. dead: how many could not become an
    event or a job. offset: what is stored now."""

    taken: int = 0
    repeated: int = 0
    dead: int = 0
    offset: int | None = None


class SourceView(msgspec.Struct, omit_defaults=True):
    """A source, or one of its partitions. offset: of the last message that was taken, where the broker has offsets.
    lag: how many messages waited at the broker when the connector last said so. problem: what it cannot do now.
    problems: how often there was one. seen_at: when the connector last wrote."""

    name: str
    kind: str
    seen_at: datetime
    connector: str
    taken: int
    repeated: int
    dead: int
    problems: int
    partition: str = ""
    offset: int | None = None
    lag: int | None = None
    problem: str | None = None
    problem_at: datetime | None = None
    taken_at: datetime | None = None


class SourceList(msgspec.Struct, omit_defaults=True):
    """A page of sources, by name and partition. next: the cursor of the next page."""

    sources: list[SourceView]
    next: str | None = None


class DeadMessageView(msgspec.Struct, omit_defaults=True):
    """A message that could not become an event or a job. value: its beginning, as text."""

    seq: int
    at: datetime
    reason: str
    id: str = ""
    partition: str = ""
    value: str = ""


class DeadMessageList(msgspec.Struct, omit_defaults=True):
    """A page of dead messages of a source, newest first. next: the cursor of the next page."""

    messages: list[DeadMessageView]
    next: str | None = None


class SourceDeleted(msgspec.Struct):
    """The answer to `DELETE /v1/sources/{name}`. partitions: how many it had."""

    name: str
    partitions: int
