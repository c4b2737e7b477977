"""What to do about fires that are late: decided here, from the definition and the time, and nowhere else.

A fire no later than ON_TIME is simply run. Older ones became due while nobody could fire them, and the policy says:
skip (record them as missed), once (run the latest of them, record the others), all (run each, newest `cap` of them,
none older than `grace`). Fires that are not run are ranges with a count: runs + missed = fires, always.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import islice

import msgspec

from mainspring.domain.schedules.schedule import Schedule, fires

POLICIES = ("skip", "once", "all")
ON_TIME = timedelta(seconds=5)  # lease TTL + 2 s: what a take-over may cost is not a misfire
CHUNK = 5000  # fires looked at in one go; a longer backlog is dealt with chunk by chunk, so no loop is held up


class MisfirePolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """grace: seconds after which a late fire is not run any more (None: late is better than never)."""

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
    """What one look at a due job leads to. `through` is the last fire dealt with, `next_fire` the one after it."""

    runs: list[datetime]
    missed: list[Missed]
    through: datetime
    next_fire: datetime | None


def plan_fires(schedule: Schedule, due: datetime, now: datetime, misfire: MisfirePolicy) -> FirePlan:
    """Plan all fires in [due, now]; `due` is the stored next fire and must not lie ahead of `now`."""
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
        # More is due than one look takes in. The oldest are missed whatever the rest is; `cap` of the late ones and
        # all that are on time wait for the next look.
        dropped = late[: -min(misfire.cap, CHUNK // 2)]
        return FirePlan([], _missed(dropped, now, misfire), dropped[-1], chunk[len(dropped)])

    kept = _kept(late, on_time, now, misfire)
    missed = _missed(late[: len(late) - len(kept)], now, misfire)
    return FirePlan(kept + on_time, missed, chunk[-1], following)


def _kept(late: list[datetime], on_time: list[datetime], now: datetime, misfire: MisfirePolicy) -> list[datetime]:
    """Those of the late fires that are run: the newest ones, if any."""
    if misfire.policy == "skip":
        return []
    young = late[_too_old(late, now, misfire) :]
    if misfire.policy == "once":
        # A fire that is on time is the one catch-up run; otherwise the latest of the late ones is.
        return [] if on_time else young[-1:]
    return young[-misfire.cap :]


def _missed(dropped: list[datetime], now: datetime, misfire: MisfirePolicy) -> list[Missed]:
    split = 0 if misfire.policy == "skip" else _too_old(dropped, now, misfire)
    parts = ((dropped[:split], "older than the misfire grace"), (dropped[split:], _REASONS[misfire.policy]))
    return [Missed(part[0], part[-1], len(part), reason) for part, reason in parts if part]


def _too_old(late: list[datetime], now: datetime, misfire: MisfirePolicy) -> int:
    """How many of the late fires the grace leaves out; they are the first ones."""
    if misfire.grace is None:
        return 0
    return sum((now - moment).total_seconds() > misfire.grace for moment in late)
