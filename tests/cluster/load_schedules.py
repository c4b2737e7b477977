"""Recurring jobs with jitter, rules and calendars for the load, jobs that end after some runs, and backfills."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

_EVERY_SECOND = "* * * * * *"
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
}  # fmt: skip
BACKFILLED = ("jittered", "by-rule", "each-second-skip")


def rules(chance: random.Random) -> dict[str, Any]:
    """Rules of the calendar. They exclude nothing that is near."""
    return {"dates": [f"2099-01-{chance.randint(1, 28):02}"]}


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
