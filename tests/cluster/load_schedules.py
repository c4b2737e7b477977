"""Recurring jobs with jitter, rules and calendars for the load, jobs whose schedules are sent again and again, jobs
that end after some runs, and backfills."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

_EVERY_SECOND = "* * * * * *"
# Schedules with a seed that deployments send again while they fire, as they are or with another jitter.
DECLARED: dict[str, dict[str, Any]] = {
    "declared-hashed": {"cron": "H/2 * * * * *"},
    "declared-every": {"every": "1s"},
    "declared-rule": {"rrule": "FREQ=MINUTELY;BYSECOND=" + ",".join(map(str, range(0, 60, 2)))},
}
_JITTERS = ("50ms", "400ms", "900ms", "950ms")
CALENDAR = "arena"  # its rules change while its job fires
RECURRING: dict[str, dict[str, Any]] = {
    "jittered": {
        "schedule": {"cron": "*/2 * * * * *", "jitter": "900ms"}, "overlap": "allow", "misfire": {"policy": "all"},
    },
    "by-rule": {
        "schedule": {"rrule": "FREQ=MINUTELY;BYSECOND=" + ",".join(map(str, range(0, 60, 3)))}, "overlap": "allow",
        "misfire": {"policy": "all"},
    },
    "in-calendar": {"schedule": {"cron": _EVERY_SECOND, "calendar": CALENDAR}, "overlap": "allow"},
    **{job: {"schedule": rule, "overlap": "allow", "misfire": {"policy": "all"}} for job, rule in DECLARED.items()},
}  # fmt: skip
BACKFILLED = ("jittered", "by-rule", "each-second-skip")


def rules(chance: random.Random) -> dict[str, Any]:
    """Rules of the calendar. They exclude nothing that is near."""
    return {"dates": [f"2099-01-{chance.randint(1, 28):02}"]}


def declared(chance: random.Random, job_id: str, jitter: str | None) -> tuple[str, dict[str, Any], str | None]:
    """How the schedule of a job with this jitter is sent: the method, the body, and the jitter from then on."""
    method = chance.choice(("PUT", "PATCH"))
    if chance.random() < 0.5:  # as it is
        return method, {"schedule": _with_jitter(job_id, jitter)}, jitter
    jitter = chance.choice((None, *_JITTERS))
    if chance.random() < 0.5:
        return "PATCH", {"schedule": {"jitter": jitter}}, jitter
    return method, {"schedule": {"jitter": None, **_with_jitter(job_id, jitter)}}, jitter


def _with_jitter(job_id: str, jitter: str | None) -> dict[str, Any]:
    return DECLARED[job_id] if jitter is None else {**DECLARED[job_id], "jitter": jitter}


def counted(chance: random.Random) -> dict[str, Any]:
    """A job whose schedule ends after a few runs."""
    schedule = {"cron": _EVERY_SECOND, "max_runs": chance.randint(1, 5)}
    return {"schedule": schedule, "overlap": "allow", "misfire": {"policy": chance.choice(("skip", "once", "all"))}}


def range_of_a_backfill(chance: random.Random) -> dict[str, Any]:
    """A range that is just over: some of its fires have run, and some are from before the load."""
    end = datetime.now(UTC) - timedelta(seconds=chance.uniform(0.0, 2.0))
    begin = end - timedelta(seconds=chance.uniform(4.0, 12.0))
    order = chance.choice(("oldest", "newest"))
    return {
        "from": begin.isoformat(), "to": end.isoformat(), "order": order, "concurrency": chance.choice((1, 3, 8)),
    }  # fmt: skip
