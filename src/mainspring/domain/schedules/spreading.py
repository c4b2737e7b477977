"""Proposals against pile-ups: a cron line with `H`, or jitter. Pure."""

from __future__ import annotations

import re
from datetime import datetime
from itertools import islice, pairwise

import msgspec

from mainspring.domain.schedules.cron_hash import has_hash
from mainspring.domain.schedules.fires import fires as following
from mainspring.domain.schedules.schedule import Schedule

_LOOK = 60  # fires
_STEP = re.compile(r"\*/([0-9]{1,2})")
# The jitter for intervals of at least so many seconds. Less than the interval, so that the order of fires stays.
_JITTERS = ((3600.0, "10m"), (900.0, "2m"), (120.0, "20s"), (30.0, "5s"))


class Spread(msgspec.Struct, frozen=True):
    cron: str | None
    jitter: str | None


def spread(schedule: Schedule, fires: list[datetime]) -> Spread | None:
    """What would give each job with this schedule moments of its own. None if it has them, or if nothing would.
    `fires`: some that follow each other."""
    if not schedule.recurring or schedule.jitter is not None:
        return None
    if has_hash(schedule.cron):
        return None
    line = None if schedule.cron is None else _with_hash(schedule.cron)
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(fires)]
    shortest = min(gaps, default=3600.0)
    jitter = next((text for least, text in _JITTERS if shortest >= least), None)
    return None if line is None and jitter is None else Spread(line, jitter)


def on_the_hour(schedule: Schedule, fires: list[datetime]) -> bool:
    """Whether a fire is at the very beginning of an hour, where most schedules are."""
    if schedule.rrule is not None:
        # A change of the clocks moves few of them to the hour.
        return 4 * sum(moment.minute == 0 and moment.second == 0 for moment in fires) > len(fires)
    if schedule.cron is not None and fires:
        # On a clock that is never moved: a change of the clocks may move a fire to the hour.
        steady = Schedule(kind=schedule.kind, cron=schedule.cron, seed=schedule.seed)
        fires = list(islice(following(steady, fires[0]), _LOOK))
    return any(moment.minute == 0 and moment.second == 0 for moment in fires)


def _with_hash(cron: str) -> str | None:
    """The line with `H` in the place of a fixed minute. None if it has none."""
    fields = cron.split()
    seconds, minute, *rest = fields if len(fields) == 6 else ["0", *fields]
    if minute.isdigit() and seconds.isdigit():
        return " ".join(["H", *rest])
    if (step := _STEP.fullmatch(minute)) and seconds.isdigit():
        return " ".join([f"H/{step[1]}", *rest])
    return None
