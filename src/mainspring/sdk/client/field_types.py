"""The types of the fields of a job that have words or members, for type checkers and editors.

A server takes words in upper case too, and refuses what does not belong here by name. tests/domain/test_fields.py
compares these types with the structs of the requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Required, TypedDict

from mainspring.wire.fields import Duration

Priority = Literal["low", "normal", "high", "critical", 0, 1, 2, 3]
Delivery = Literal["at_least_once", "at_most_once"]
Overlap = Literal["skip", "allow", "queue", "cancel_previous"]
Outside = Literal["skip", "next"]
Sandbox = Literal["bubblewrap", "none"]
ScheduleKind = Literal["IMMEDIATE", "FUTURE", "CRON", "INTERVAL", "RRULE", "AFTER", "EVENT", "MANUAL"]
Rule = Literal["all_success", "all_done", "one_success", "one_failed"]
OnUpstreamFailure = Literal["skip", "fail"]
MisfirePolicy = Literal["skip", "once", "all"]
Variables = Mapping[str, str | Mapping[str, str]]  # {"$secret": name}: the value of a secret
_Per = Literal["job", "task"]
_RunEvent = Literal[
    "failure", "first_failure", "every_failure", "tries_exhausted", "recovered", "success", "fire_missed",
    "started_late", "ran_too_long", "deadline_missed",
]  # fmt: skip


class NotifyOptions(TypedDict):
    """Whom to tell of what: {"on": ["failure", "recovered"], "to": ["oncall"]}."""

    on: Sequence[_RunEvent]
    to: Sequence[str]


class EventsTogetherOptions(TypedDict, total=False):
    """Events that share a run: {"size": 100, "wait": "10s"}. by_key: only those of the same key."""

    size: Required[int]
    wait: Required[Duration]
    by_key: bool


class RetryRuleOptions(TypedDict, total=False):
    """One of error, exit_code and http_status, and what follows: {"error": "ValueError", "then": "give_up"}."""

    error: str | Sequence[str]
    exit_code: int | Sequence[int]
    http_status: int | str | Sequence[int | str]
    then: Literal["retry", "give_up"]
    after: Duration


class RetryOptions(TypedDict, total=False):
    """How failed attempts are retried: {"max_attempts": 5, "base": "10s"}."""

    max_attempts: int
    backoff: Literal["exponential", "linear", "fibonacci", "constant"]
    base: Duration
    cap: Duration
    jitter: float
    rules: Sequence[RetryRuleOptions]


class MisfireOptions(TypedDict, total=False):
    """What happens to fires that became due while no server could fire them."""

    policy: MisfirePolicy
    grace: Duration
    cap: int


class ResourceLimitOptions(TypedDict, total=False):
    """What the processes of one attempt may use together. Sizes are bytes, or text such as "512MB"."""

    memory: int | str
    cpu: Duration
    processes: int
    files: int
    output: int | str
    disk: int | str


class ConcurrencyOptions(TypedDict, total=False):
    """How many runs at once: {"limit": 1, "key": "payload.account"}."""

    limit: Required[int]
    key: str
    per: _Per
    order: Literal["priority", "strict"]


class RateLimitOptions(TypedDict, total=False):
    """How often runs start: {"rate": "100/m", "key": "payload.customer"}."""

    rate: Required[str]
    burst: int
    key: str
    per: _Per


class CircuitBreakerOptions(TypedDict, total=False):
    """How many failures in a row stop the runs, and for how long."""

    failures: int
    open_for: Duration
    per: _Per


class DstOptions(TypedDict, total=False):
    """What happens to times that a clock change leaves out or repeats."""

    gap: Literal["shift", "skip"]
    overlap: Literal["first", "last", "both"]


# Written as a call, because `for`, `while` and `else` are words of Python.
UniqueOptions = TypedDict(
    "UniqueOptions",
    {
        "by": Required[Sequence[str]],
        "for": Duration,
        "while": Sequence[Literal["scheduled", "held", "queued", "running"]],
        "else": Literal["keep", "replace", "later"],
    },
    total=False,
)
UniqueOptions.__doc__ = """Which jobs are the same: {"by": ["payload.account"], "for": "1m", "else": "replace"}."""
