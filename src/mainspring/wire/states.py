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
    SCHEDULED = "SCHEDULED"
    WAITING = "WAITING"
    HELD = "HELD"
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    SKIPPED = "SKIPPED"


class JobStatus(StrEnum):
    SCHEDULED = "SCHEDULED"
    PAUSED = "PAUSED"
    CANCELLED = "CANCELLED"
    COMPLETED = "COMPLETED"


class TimelineState(StrEnum):
    """What a timeline has in addition to the states of a run."""

    SUBMITTED = "SUBMITTED"
    FIRED = "FIRED"
    RETURNED = "RETURNED"
    LOST = "LOST"
    CANCEL_REQUESTED = "CANCEL_REQUESTED"
    REPLAYED = "REPLAYED"
    LEFT_OUT = "LEFT_OUT"


def words(name: str, *values: str, description: str | None = None) -> Meta:
    """A text that is one of these words."""
    return Meta(description=description, extra_json_schema={"enum": list(values), NAMED: name})


def _filter(name: str, states: Iterable[str], *more: str) -> Meta:
    return words(name, *states, *more, description="In upper or lower case. Several, repeated or with commas.")


RunStateWord = Annotated[str, words("RunState", *RunState)]
JobStatusWord = Annotated[str, words("JobState", *JobStatus)]
WorkerStateWord = Annotated[str, words("WorkerState", "LIVE", "DRAINING", "LOST", "STOPPED")]
TimelineStateWord = Annotated[str, words("TimelineState", *RunState, *TimelineState)]
AttemptOutcomeWord = Annotated[str, words("AttemptOutcome", "FAILED", "LOST", "RETURNED")]
RunStateFilter = Annotated[str, _filter("RunStateFilter", RunState, "pending", "completed")]
JobStatusFilter = Annotated[str, _filter("JobStateFilter", JobStatus, "pending")]
Trigger = Annotated[
    str,
    Meta(
        description="Why the run exists: the schedule, run-now, or a replay of another run.",
        extra_json_schema={
            "pattern": "^(schedule|manual:.+|replay:.+)$",
            "examples": ["schedule", "replay:0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11"],
        },
    ),
]
PriorityWord = Annotated[str, words("Priority", "low", "normal", "high", "critical")]
PriorityIn = PriorityWord | Annotated[int, Meta(extra_json_schema={"minimum": 0, "maximum": 3})]
ScheduleType = Annotated[str, words("ScheduleType", "IMMEDIATE", "FUTURE", "CRON", "INTERVAL", "MANUAL")]
OverlapWord = Annotated[str, words("Overlap", "skip", "allow")]
DeliveryWord = Annotated[str, words("Delivery", "at_least_once", "at_most_once")]
MISFIRE_POLICIES = ("skip", "once", "all")
MisfireWord = Annotated[str, words("MisfirePolicy", *MISFIRE_POLICIES)]
BACKOFFS = ("exponential", "linear", "fibonacci", "constant")
BackoffWord = Annotated[str, words("Backoff", *BACKOFFS)]
RuleWord = Annotated[str, words("RetryAction", "retry", "give_up")]
SandboxWord = Annotated[str, words("Sandbox", "bubblewrap", "none")]
RoleWord = Annotated[str, words("Role", "admin", "worker")]
TenantsWord = Annotated[str, words("Tenants", "own", "all")]
