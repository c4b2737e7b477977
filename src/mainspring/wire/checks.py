"""Messages of the dashboard about jobs that are not stored yet, about what is found by its name, and about nodes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from mainspring.wire.insights import NodeView
from mainspring.wire.states import ScheduleType, words

FoundKind = Annotated[str, words("FoundKind", "job", "queue", "run", "task", "worker")]
SearchText = Annotated[str, Meta(min_length=1, max_length=200)]


class JobCheck(msgspec.Struct):
    """The response to `POST /v1/jobs:validate`: what the job would be. warnings: as when it is created."""

    task: str
    queue: str
    schedule_type: ScheduleType
    schedule: str
    schedule_in_words: str
    warnings: list[str] = []


class Match(msgspec.Struct):
    """kind: what it is. name: that of a job or a worker; of a run, its job or task."""

    kind: FoundKind
    id: str
    name: str | None = None


class Matches(msgspec.Struct):
    """The response to `GET /v1/search`: eight of each kind at most. more: whether there are others."""

    matches: list[Match]
    more: bool


class NodeList(msgspec.Struct):
    """The response to `GET /v1/nodes`: the live nodes. shards_held: how many of the shards have a node."""

    nodes: list[NodeView]
    shards_held: int
    shards: int
