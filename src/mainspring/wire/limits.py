"""Messages about limits: how many runs at once."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from mainspring.wire.states import words

OrderWord = Annotated[str, words("LimitOrder", "priority", "strict")]
PerWord = Annotated[str, words("LimitScope", "job", "task")]
KeyPath = Annotated[
    str,
    Meta(
        description="A value of the payload or a label of the job: each value has a line of its own.",
        extra_json_schema={"examples": ["payload.account", "labels.region"]},
    ),
]


class ConcurrencyIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """At most `limit` runs at once. key: each value of it has its own count. per: the runs of this job, or of all jobs
    of its task; with a key, or for a one-time job without a job_id, the task. order: strict starts runs in the order of
    their submission, one after another, and a run that fails holds up those behind it until it has ended."""

    limit: int
    key: KeyPath | None = None
    per: PerWord | None = None
    order: OrderWord | None = None


class ConcurrencyView(msgspec.Struct, omit_defaults=True):
    limit: int
    key: str | None = None
    per: PerWord | None = None
    order: OrderWord = "priority"


class LimitView(msgspec.Struct, omit_defaults=True):
    """A limit. name: what it limits. limit: how many runs at once. declared: false if a person has set the limit; what
    jobs and tasks declare then has no effect. keys: how many lines it has; in_use: the runs that have a slot now; held:
    the runs that wait for one."""

    limit_id: int
    name: str
    limit: int | None
    order: OrderWord
    declared: bool
    keys: int
    in_use: int
    held: int
    updated_at: datetime


class LimitList(msgspec.Struct):
    limits: list[LimitView]
    next: str | None = None


class LimitKeyView(msgspec.Struct):
    """A line of a limit. runs: those that have a slot, at most 20."""

    key: str
    in_use: int
    held: int
    runs: list[str]


class LimitDetails(msgspec.Struct):
    """A limit with its lines, the busiest first, at most 100."""

    limit: LimitView
    lines: list[LimitKeyView]


class LimitPatch(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `PUT /v1/limits/{limit_id}`. limit: how many runs at once from now on; null returns to what jobs and
    tasks declare."""

    limit: int | None
