"""Messages about rules: who is told of what."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from mainspring.wire.calendars import TimeOfDay, WeekdayWord
from mainspring.wire.formats import DurationIn, Name, TimeZone
from mainspring.wire.states import words

DELAYS = ("started_late", "ran_too_long", "deadline_missed")
RUN_EVENTS = (
    "failure", "first_failure", "every_failure", "tries_exhausted", "recovered", "success", "fire_missed", *DELAYS,
)  # fmt: skip
OTHER_EVENTS = (
    "worker_lost", "breaker_opened", "breaker_closed", "backfill_ended", "operation_ended", "scheduler_failover",
    "approval_waits",
)  # fmt: skip
CONDITIONS = (
    "success_rate_below", "retries_above", "lag_above", "dead_letters_above", "queue_behind", "no_worker", "quota_near",
    "pause_forgotten", "never_ran", "always_fails", "clocks_differ", "database_near_limit",
)  # fmt: skip
EventWord = Annotated[str, words("NotableEvent", *RUN_EVENTS, *OTHER_EVENTS, *CONDITIONS)]
RunEventWord = Annotated[str, words("NotableRunEvent", *RUN_EVENTS)]
ChannelNames = Annotated[list[Name], Meta(description="Names of channels.")]


class JobNotify(msgspec.Struct, frozen=True):
    """A rule of one job: on which events it tells which channels."""

    on: list[RunEventWord]
    to: ChannelNames


class NotifyIn(JobNotify, frozen=True, forbid_unknown_fields=True):
    """As a request says it."""


class QuietIn(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    rename={"start": "from", "end": "to"},
):
    """Times in which the rule tells nothing: from and to on each of these days. Messages wait until the end."""

    start: TimeOfDay
    end: TimeOfDay
    timezone: TimeZone = "UTC"
    days: list[WeekdayWord] | None = None


class EscalateIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Channels that are told if it is not acknowledged after so long."""

    after: DurationIn
    to: ChannelNames


class RuleRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `PUT /v1/rules/{name}`. job, task, queue, labels: which runs it is about; without them all runs of
    the tenant. group_wait: how long the first message waits for more. group_interval: there is one message at most in
    this time. repeat_interval: how often it reminds of what has not recovered. over, above, below: the window and
    the bound of a condition."""

    on: list[EventWord]
    to: ChannelNames
    description: str | None = None
    job: Name | None = None
    task: Name | None = None
    queue: Name | None = None
    labels: dict[str, str] | None = None
    group_wait: DurationIn | None = None
    group_interval: DurationIn | None = None
    repeat_interval: DurationIn | None = None
    quiet: QuietIn | None = None
    escalate: EscalateIn | None = None
    over: DurationIn | None = None
    above: float | None = None
    below: float | None = None


class RuleView(msgspec.Struct, omit_defaults=True):
    """A rule. Durations are in seconds. muted_until: until then it tells nothing."""

    name: str
    version: int
    created_at: datetime
    updated_at: datetime
    updated_by: str
    on: list[EventWord]
    to: list[str]
    group_wait: float
    group_interval: float
    repeat_interval: float
    muted_until: datetime | None = None
    description: str | None = None
    job: str | None = None
    task: str | None = None
    queue: str | None = None
    labels: dict[str, str] = {}
    quiet: QuietIn | None = None
    escalate: EscalateIn | None = None
    over: float | None = None
    above: float | None = None
    below: float | None = None


class RuleList(msgspec.Struct):
    rules: list[RuleView]
    next: str | None = None


class MuteRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"duration": "for"}):
    """How long a rule tells nothing. At most a year."""

    duration: DurationIn
