"""What a handler says about its answers beyond its return type, for the OpenAPI document.

`answers={202: Answer("The new run")}` replaces the one success that follows from the signature. `problems=(...)` names
the codes of the refusals that only this operation has; openapi/problem_codes.py adds those that follow from the
request. `examples={"name": body}` are bodies that clients can send. `body=...` is the type of the body if it is not
that of `data`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """A success. body: the type of its body; None means that of the handler. or_body: another type that it may have.
    content: an example for each media type, if the answer is not JSON. events: the type of the data of each event, if
    the answer is a stream."""

    description: str
    headers: tuple[str, ...] = ()
    body: Any = None
    or_body: Any = None
    content: dict[str, str] | None = None
    events: dict[str, Any] = field(default_factory=dict)


# Codes of refusals that several operations share.
CHANGES_A_JOB = ("changed_meanwhile", "unreadable")
FIELDS_OF_A_JOB = (
    "bad_payload", "calendar_leaves_no_fire", "cron_never_fires", "cycle", "invalid_condition", "invalid_cron",
    "invalid_duration", "invalid_rate", "invalid_reference", "invalid_rrule", "invalid_size", "invalid_time",
    "masked_value", "secret_not_allowed", "too_many_secrets", "unknown_secret",
    "missing_timezone", "never_fires", "not_supported_yet",
    "strict_order", "time_passed", "unknown_calendar", "unknown_job", "unknown_timezone", "unstorable_value",
)  # fmt: skip
QUOTAS = ("over_quota", "quota_exceeded")  # of what submits jobs
RUNS_NOW = (
    "quota_exceeded",
    "bad_payload", "changed_meanwhile", "idempotency_key_reused", "job_cancelled", "masked_value", "no_result",
    "overlap", "payload_dropped", "secret_not_allowed", "unreadable", "unstorable_value",
)  # fmt: skip
REPEATS_A_RUN = (
    "quota_exceeded",
    "payload_dropped",
    "bad_payload",
    "changed_meanwhile",
    "job_cancelled",
    "masked_value",
    "overlap",
    "replayed",
    "secret_not_allowed",
    "unreadable",
    "unstorable_value",
)
SEARCHES = ("invalid_time", "list_too_slow", "missing_timezone", "search_too_slow", "too_many_searches")
LISTS = ("list_too_slow", "too_many_searches")
SPEAKS_FOR_A_WORKER = ("unknown_worker", "worker_gone", "wrong_incarnation")
