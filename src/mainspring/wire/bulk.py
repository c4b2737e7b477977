"""Messages about one verb on many jobs, runs or dead letters, and about the operations that carry it out."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from mainspring.wire.formats import Moment
from mainspring.wire.states import (
    BulkStateWord,
    BulkTargetWord,
    DeadLetterVerbWord,
    HealthFilter,
    JobStatusFilter,
    JobVerbWord,
    RunStateFilter,
    RunVerbWord,
    ScheduleTypeFilter,
)

Ids = Annotated[list[str], Meta(min_length=1, max_length=1000)]
Expected = Annotated[int, Meta(extra_json_schema={"minimum": 0, "maximum": 2**31 - 1})]


class JobsFilter(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The parameters of `GET /v1/jobs`. All that are given must match; {} stands for all jobs of that list."""

    status: list[JobStatusFilter] = []
    latest_run: list[RunStateFilter] = []
    label: str | None = None
    queue: str | None = None
    owner: str | None = None
    q: str | None = None
    created_after: Moment | None = None
    created_before: Moment | None = None
    next_fire_after: Moment | None = None
    next_fire_before: Moment | None = None
    declared_by: str | None = None
    created_by: str | None = None
    task: str | None = None
    schedule_type: list[ScheduleTypeFilter] = []
    health: list[HealthFilter] = []


class RunsFilter(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The parameters of `GET /v1/runs`. All that are given must match. payload: values of declared keys, such as
    {"account": "42"}."""

    status: list[RunStateFilter] = []
    job: str | None = None
    queue: str | None = None
    task: str | None = None
    error: str | None = None
    label: str | None = None
    worker: str | None = None
    created_by: str | None = None
    payload: dict[str, str] = {}
    since: Moment | None = None
    until: Moment | None = None
    created_after: Moment | None = None
    created_before: Moment | None = None


class DeadLettersFilter(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The parameters of `GET /v1/dead-letters`. All that are given must match."""

    job: str | None = None
    task: str | None = None
    queue: str | None = None
    error: str | None = None
    since: Moment | None = None
    until: Moment | None = None


AnyFilter = JobsFilter | RunsFilter | DeadLettersFilter


class JobsAct(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `POST /v1/jobs:act`: a verb, and either `filter` or `ids`. dry_run: only count. expected: the number
    that was confirmed, which a filter needs; if clearly more match (10 %), nothing is done."""

    verb: JobVerbWord
    filter: JobsFilter | None = None
    ids: Ids | None = None
    dry_run: bool = False
    expected: Expected | None = None


class RunsAct(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `POST /v1/runs:act`, as that of `POST /v1/jobs:act`. `cancel` is for those that have not ended,
    `retry` for those that have; `replay` is another name of it."""

    verb: RunVerbWord
    filter: RunsFilter | None = None
    ids: Ids | None = None
    dry_run: bool = False
    expected: Expected | None = None


class DeadLettersAct(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `POST /v1/dead-letters:act`, as that of `POST /v1/jobs:act`."""

    verb: DeadLetterVerbWord
    filter: DeadLettersFilter | None = None
    ids: Ids | None = None
    dry_run: bool = False
    expected: Expected | None = None


Act = JobsAct | RunsAct | DeadLettersAct


class Counted(msgspec.Struct):
    """The answer to a dry run. exact: false if there are too many to count; then `count` is an estimate, or there are
    at least so many. examples: the ids of some."""

    count: int
    exact: bool
    examples: list[str] = []


class Failure(msgspec.Struct):
    """One object that the verb was refused for."""

    id: str
    reason: str


class OperationView(msgspec.Struct):
    """A verb on many objects. count: how many were chosen when it began; exact: whether that is the exact number.
    expected: the number that was confirmed. done: for how many the verb was carried out. failed: for how many it was
    refused; `failures` has the first 20. reason: why it ended before all were dealt with. filter: null if they were
    chosen by ids. requested_by: the name of the token. etag: for If-Match."""

    id: str
    target: BulkTargetWord
    verb: str
    state: BulkStateWord
    count: int
    exact: bool
    expected: int | None
    done: int
    failed: int
    failures: list[Failure]
    reason: str | None
    filter: dict[str, Any] | None
    requested_by: str
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    etag: str = ""


class OperationList(msgspec.Struct, omit_defaults=True):
    operations: list[OperationView]
    next: str | None = None
