"""Messages about limits: how many runs at once."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from mainspring.wire.formats import DurationIn
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


RateText = Annotated[
    str,
    Meta(
        description="A number of starts and a time: s, m, h, d or a duration.",
        extra_json_schema={"examples": ["100/m", "5/s", "10/30s"]},
    ),
]


class RateLimitIn(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """At most `rate` starts of runs, retries included. burst: how many may start at once after a pause; by default what
    comes in a tenth of a second, at least 1. key, per: as for concurrency."""

    rate: RateText
    burst: int | None = None
    key: KeyPath | None = None
    per: PerWord | None = None


class RateLimitView(msgspec.Struct, omit_defaults=True):
    rate: str
    burst: int
    key: str | None = None
    per: PerWord | None = None


class CircuitBreakerIn(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """So many failures in a row (5) stop the runs of the job for open_for (10m). Then one run is the probe. per: the
    runs of this job, or of all jobs of its task; for a one-time job without a job_id, the task."""

    failures: int | None = None
    open_for: DurationIn | None = None
    per: PerWord | None = None


class CircuitBreakerView(msgspec.Struct, omit_defaults=True):
    failures: int
    open_for: float
    per: PerWord | None = None


BreakerState = Annotated[str, words("BreakerState", "closed", "open", "half_open")]


class BreakerView(msgspec.Struct):
    """A circuit breaker: that of the job, or of all jobs of the task. failed: the failures in a row so far; `failures`
    of them open it. probe_at: when the next run may start. probe: the run that finds out whether it may close. held:
    the runs that wait in its line. etag: for If-Match."""

    breaker_id: int
    job_id: str | None
    task: str | None
    state: BreakerState
    failed: int
    failures: int
    open_for: float
    opened_at: datetime | None
    probe_at: datetime | None
    probe: str | None
    held: int
    etag: str = ""


class BreakerList(msgspec.Struct):
    """more: there are more than are shown."""

    breakers: list[BreakerView]
    more: bool = False


class LimitView(msgspec.Struct):
    """A limit. name: what it limits: job:ID, task:NAME, either with :PATH of its key, or overlap:JOB_ID; rate: before
    it for a rate, breaker: for a circuit breaker. limit: how many runs at once, for each key. rate, burst: how often
    they may start. declared: what jobs and tasks have declared last. pinned: a person has set the
    limit, and what is declared has no effect. keys: how many lines it has. in_use: the runs that have a slot now. held:
    the runs that wait for one. etag: for If-Match."""

    limit_id: int
    name: str
    limit: int | None
    declared: int | None
    pinned: bool
    order: OrderWord
    keys: int
    in_use: int
    held: int
    updated_at: datetime
    rate: str | None = None
    burst: int | None = None
    etag: str = ""


class LimitList(msgspec.Struct):
    limits: list[LimitView]
    next: str | None = None


class LimitLineView(msgspec.Struct):
    """A line of a limit. key: the value as JSON; an empty text if the limit has no key. runs: the ids of those that
    have a slot, at most 20."""

    key: str
    in_use: int
    held: int
    runs: list[str]


class LimitDetails(msgspec.Struct):
    """A limit with its lines, at most 100, those with most runs that wait first."""

    limit: LimitView
    lines: list[LimitLineView]


class LimitRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `PUT /v1/limits/{limit_id}`. limit: how many runs at once from now on; null returns to what jobs and
    tasks declare. order: priority ends strict order, until a job declares it again."""

    limit: int | None
    order: OrderWord | None = None
