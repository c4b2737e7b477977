"""Decides what happens to late fires, from the job's definition and the current time.

A fire that is at most ON_TIME late is run. Older ones became due while no node could fire them. The policy decides:
`skip` records them as missed, `once` runs the latest and records the others, `all` runs the newest `cap` of them that
are not older than `grace`. Fires that are not run are recorded as ranges with a count: runs + missed = fires, always.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import islice

import msgspec

from mainspring.domain.schedules.schedule import Schedule, fires

POLICIES = ("skip", "once", "all")
ON_TIME = timedelta(seconds=5)  # lease TTL + 2 s: a take-over by another node causes no misfire
CHUNK = 5000  # fires planned in one step; a longer backlog takes several steps, so that it blocks no event loop


class MisfirePolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """grace: how many seconds late a fire may be to be run. None: any."""

    policy: str = "once"
    grace: float | None = None
    cap: int = 100


DEFAULT_MISFIRE = MisfirePolicy()
_REASONS = {
    "skip": "late: misfire policy skip",
    "once": "coalesced into a later fire",
    "all": "over the misfire cap",
}


class Missed(msgspec.Struct, frozen=True):
    """A range of fires that are not run."""

    first: datetime
    last: datetime
    count: int
    reason: str


class FirePlan(msgspec.Struct, frozen=True):
    """The runs and missed fires of a due job. `through` is the last fire that is handled, `next_fire` the next one."""

    runs: list[datetime]
    missed: list[Missed]
    through: datetime
    next_fire: datetime | None


def plan_fires(schedule: Schedule, due: datetime, now: datetime, misfire: MisfirePolicy) -> FirePlan:
    """Plan all fires in [due, now]. `due` is the stored next fire and must not be after `now`."""
    chunk = [due]
    following: datetime | None = None
    for moment in islice(fires(schedule, due), CHUNK):
        if moment > now:
            following = moment
            break
        chunk.append(moment)

    on_time = [moment for moment in chunk if now - moment <= ON_TIME]
    late = chunk[: len(chunk) - len(on_time)]
    if len(chunk) > CHUNK:
        # More fires are due than one step handles. The oldest are missed in any case. `cap` of the late ones and all
        # that are on time are left for the next step.
        dropped = late[: -min(misfire.cap, CHUNK // 2)]
        return FirePlan([], _missed(dropped, now, misfire), dropped[-1], chunk[len(dropped)])

    kept = _kept(late, on_time, now, misfire)
    missed = _missed(late[: len(late) - len(kept)], now, misfire)
    return FirePlan(kept + on_time, missed, chunk[-1], following)


def _kept(late: list[datetime], on_time: list[datetime], now: datetime, misfire: MisfirePolicy) -> list[datetime]:
    """The late fires that are run. They are the newest ones."""
    if misfire.policy == "skip":
        return []
    young = late[_too_old(late, now, misfire) :]
    if misfire.policy == "once":
        # A fire that is on time is the one catch-up run. Otherwise the latest late fire is.
        return [] if on_time else young[-1:]
    return young[-misfire.cap :]


def _missed(dropped: list[datetime], now: datetime, misfire: MisfirePolicy) -> list[Missed]:
    split = 0 if misfire.policy == "skip" else _too_old(dropped, now, misfire)
    parts = ((dropped[:split], "older than the misfire grace"), (dropped[split:], _REASONS[misfire.policy]))
    return [Missed(part[0], part[-1], len(part), reason) for part, reason in parts if part]


def _too_old(late: list[datetime], now: datetime, misfire: MisfirePolicy) -> int:
    """How many of the late fires are older than the grace. They are the first ones."""
    if misfire.grace is None:
        return 0
    return sum((now - moment).total_seconds() > misfire.grace for moment in late)
