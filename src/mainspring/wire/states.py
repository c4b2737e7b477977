"""The words of the API: states, and the choices of a field. Each is an enum here and in the OpenAPI document.

Structs declare them as texts, so that an older client can read a state that a newer server has. Requests may write a
word in upper or lower case; the document shows the form that answers have.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

NAMED = "x-name"  # the document makes a schema of this name


class RunState(StrEnum):
    """SCHEDULED: it backs off before its next attempt. HELD: it waits for room in a limit or a quota. QUEUED: it waits
    for a worker, or to be started by one. WAITING: it waits for other runs to end. The last four are ends."""

    SCHEDULED = "SCHEDULED"
    WAITING = "WAITING"
    HELD = "HELD"
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    SKIPPED = "SKIPPED"


class JobState(StrEnum):
    """SCHEDULED: it has yet to fire, or will fire again; a one-time job also while its run waits or backs off. RUNNING
    and FAILED are states of one-time jobs only. A one-time job is FAILED too if it did not run in time (SKIPPED or
    missed). COMPLETED: a one-time job has succeeded, or the schedule of a recurring one has ended."""

    SCHEDULED = "SCHEDULED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class TimelineState(StrEnum):
    """What a timeline has in addition to the states of a run."""

    SUBMITTED = "SUBMITTED"
    FIRED = "FIRED"
    RETURNED = "RETURNED"
    LOST = "LOST"
    SNOOZED = "SNOOZED"
    CANCEL_REQUESTED = "CANCEL_REQUESTED"
    REPLAYED = "REPLAYED"
    LEFT_OUT = "LEFT_OUT"


class JobEvent(StrEnum):
    """What a timeline of a job tells."""

    RUN = "RUN"
    CREATED = "CREATED"
    CHANGED = "CHANGED"
    PAUSED = "PAUSED"
    CANCELLED = "CANCELLED"
    MISSED = "MISSED"


def words(name: str, *values: str, description: str | None = None) -> Meta:
    """A text that is one of these words."""
    return Meta(description=description, extra_json_schema={"enum": list(values), NAMED: name})


def _filter(name: str, states: Iterable[str], *more: str) -> Meta:
    return words(name, *states, *more, description="In upper or lower case. Several, repeated or with commas.")


RunStateWord = Annotated[str, words("RunState", *RunState)]
JobStatusWord = Annotated[str, words("JobState", *JobState)]
WorkerStateWord = Annotated[str, words("WorkerState", "LIVE", "DRAINING", "LOST", "STOPPED")]
TimelineStateWord = Annotated[str, words("TimelineState", *RunState, *TimelineState)]
AttemptOutcomeWord = Annotated[str, words("AttemptOutcome", "FAILED", "LOST", "RETURNED", "SNOOZED")]
JobWhyWord = Annotated[
    str,
    words(
        "JobWhyReason", "ran", "runs", "waits", "skipped", "missed", "misfire", "paused", "cancelled", "ended",
        "calendar", "clock_change", "left_out", "not_due", "not_yet", "not_fired", "no_schedule", "created_later",
        "changed_later", "unknown",
    ),
]  # fmt: skip
JobEventWord = Annotated[str, words("JobEvent", *JobEvent)]
RunStateFilter = Annotated[str, _filter("RunStateFilter", RunState, "pending", "completed")]
JobStatusFilter = Annotated[str, _filter("JobStateFilter", JobState, "pending")]
Trigger = Annotated[
    str,
    Meta(
        description="Why the run exists: the schedule, run-now, a replay of another run, a backfill, an event, or a "
        "workflow run whose step it is, which runs again, or a step of which runs this workflow.",
        extra_json_schema={
            "pattern": "^(schedule|manual:.+|replay:.+|backfill:.+|event:.+|step:.+|rerun:.+|parent:.+)$",
            "examples": ["schedule", "replay:0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11"],
        },
    ),
]
BACKFILL_STATES = ("running", "paused", "cancelled", "completed")
BackfillStateWord = Annotated[str, words("BackfillState", *BACKFILL_STATES)]
BackfillStateFilter = Annotated[str, _filter("BackfillStateFilter", BACKFILL_STATES)]
BackfillOrder = Annotated[str, words("BackfillOrder", "oldest", "newest")]
BULK_STATES = ("RUNNING", "DONE", "CANCELLED", "FAILED")
BulkStateWord = Annotated[str, words("OperationState", *BULK_STATES)]
BulkStateFilter = Annotated[str, _filter("OperationStateFilter", BULK_STATES)]
BulkTargetWord = Annotated[str, words("OperationTarget", "jobs", "runs", "dead_letters")]
JOB_VERBS = ("pause", "resume", "cancel", "run_now")
JobVerbWord = Annotated[str, words("JobVerb", *JOB_VERBS)]
RUN_VERBS = ("cancel", "retry", "replay")
RunVerbWord = Annotated[str, words("RunVerb", *RUN_VERBS)]
DEAD_LETTER_VERBS = ("replay", "discard")
DeadLetterVerbWord = Annotated[str, words("DeadLetterVerb", *DEAD_LETTER_VERBS)]
PriorityWord = Annotated[str, words("Priority", "low", "normal", "high", "critical")]
PriorityIn = PriorityWord | Annotated[int, Meta(extra_json_schema={"minimum": 0, "maximum": 3})]
ScheduleType = Annotated[
    str, words("ScheduleType", "IMMEDIATE", "FUTURE", "CRON", "INTERVAL", "RRULE", "AFTER", "EVENT", "MANUAL")
]
ScheduleTypeFilter = Annotated[
    str, _filter("ScheduleTypeFilter", ("IMMEDIATE", "FUTURE", "CRON", "INTERVAL", "RRULE", "AFTER", "EVENT", "MANUAL"))
]
GAPS = ("shift", "skip")
GapWord = Annotated[str, words("Gap", *GAPS)]
FOLDS = ("first", "last", "both")
FoldWord = Annotated[str, words("Fold", *FOLDS)]
OutsideWord = Annotated[str, words("Outside", "skip", "next")]
OverlapWord = Annotated[str, words("Overlap", "skip", "allow", "queue", "cancel_previous")]
DeliveryWord = Annotated[str, words("Delivery", "at_least_once", "at_most_once")]
MISFIRE_POLICIES = ("skip", "once", "all")
MisfireWord = Annotated[str, words("MisfirePolicy", *MISFIRE_POLICIES)]
BACKOFFS = ("exponential", "linear", "fibonacci", "constant")
BackoffWord = Annotated[str, words("Backoff", *BACKOFFS)]
RuleWord = Annotated[str, words("RetryAction", "retry", "give_up")]
TRIGGER_RULES = ("all_success", "all_done", "one_success", "one_failed")
TriggerRuleWord = Annotated[str, words("TriggerRule", *TRIGGER_RULES)]
ON_UPSTREAM_FAILURE = ("skip", "fail")
OnUpstreamFailureWord = Annotated[str, words("OnUpstreamFailure", *ON_UPSTREAM_FAILURE)]
ON_DEADLINE = ("tell", "cancel")
OnDeadlineWord = Annotated[str, words("OnDeadline", *ON_DEADLINE)]
JOB_HEALTH = ("healthy", "late", "failing", "silent", "never_ran")
HealthWord = Annotated[str, words("HealthState", *JOB_HEALTH)]
HealthFilter = Annotated[str, _filter("HealthFilter", JOB_HEALTH)]
SandboxWord = Annotated[str, words("Sandbox", "bubblewrap", "none")]
RoleWord = Annotated[str, words("Role", "admin", "operator", "submitter", "viewer", "metrics", "worker")]
PersonRoleWord = Annotated[str, words("PersonRole", "admin", "operator", "submitter", "viewer")]
UserStateWord = Annotated[str, words("UserState", "active", "invited", "disabled")]
CreatorWord = Annotated[str, words("CreatorKind", "token")]
TenantsWord = Annotated[str, words("Tenants", "own", "all")]
