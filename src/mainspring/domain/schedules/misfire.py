"""Decides what happens to late fires, from the job's definition and the current time.

A fire that is at most ON_TIME late is run. Older ones became due while no node could fire them. The policy decides:
`skip` records them as missed, `once` runs the latest and records the others, `all` runs the newest `cap` of them that
are not older than `grace`. Fires that are not run are recorded as ranges with a count: runs + missed = fires, always.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta

import msgspec

from mainspring.domain.schedules.fires import count_fires, newest_fires, next_fire
from mainspring.domain.schedules.nominal_times import first_fire, nominal_and_next, nominal_of
from mainspring.domain.schedules.schedule import Schedule

ON_TIME = timedelta(seconds=5)  # lease TTL + 2 s: a take-over by another node causes no misfire
CHUNK = 5000  # fires planned in one step; of a longer backlog the oldest are recorded in a step of their own
_ONE_BY_ONE = (
    1500  # fires that are evaluated one by one, which takes 25 ms; if there are more, the oldest are only counted
)


class MisfirePolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """grace: how many seconds late a fire may be to be run. None: any."""

    policy: str = "once"
    grace: float | None = None
    cap: int = 100


_MOMENT = timedelta(microseconds=1)
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
    """The runs and missed fires of a due job. `through` is the last fire that is handled, `next_fire` the next one.
    With jitter: `nominal` is the nominal time of `through`, `nominal_runs` has those of the runs."""

    runs: list[datetime]
    missed: list[Missed]
    through: datetime
    next_fire: datetime | None
    nominal: datetime | None = None
    nominal_runs: list[datetime] = []

    @property
    def dealt_with(self) -> datetime:
        """The nominal time up to which all are dealt with."""
        return self.through if self.nominal is None else self.nominal


def plan_fires(
    schedule: Schedule, due: datetime, now: datetime, misfire: MisfirePolicy, dealt_with: datetime | None = None
) -> FirePlan:
    """Plan all fires in [due, now]. `due` is the stored next fire and must not be after `now`. Nothing is planned for
    nominal times up to `dealt_with`."""
    if schedule.jitter is None:
        return _planned(schedule, due, next_fire(schedule, due), now, misfire)
    nominal, following = nominal_and_next(schedule, due)
    if dealt_with is not None and nominal <= dealt_with:
        first = first_fire(schedule, due, dealt_with)
        if first is None or first > now:
            return FirePlan([], [], due, first, nominal)
        due = first
        nominal, following = nominal_and_next(schedule, due)
    plan = _planned(schedule, due, following, now, misfire)
    nominal_runs = [nominal if moment == due else nominal_of(schedule, moment) for moment in plan.runs]
    if plan.through != due:
        nominal = nominal_of(schedule, plan.through)
    return msgspec.structs.replace(plan, nominal=nominal, nominal_runs=nominal_runs)


def _planned(
    schedule: Schedule, due: datetime, following: datetime | None, now: datetime, misfire: MisfirePolicy
) -> FirePlan:
    """`following`: the fire after `due`."""
    chunk = [due]
    if following is not None and following <= now:
        behind = count_fires(schedule, due, now)
        if behind >= CHUNK:
            return _miss_oldest(schedule, due, now, misfire)
        if behind > _ONE_BY_ONE:
            oldest = _miss_oldest(schedule, due, now, misfire)
            assert oldest.next_fire is not None
            rest = _planned(schedule, oldest.next_fire, next_fire(schedule, oldest.next_fire), now, misfire)
            return FirePlan(rest.runs, _joined(oldest.missed, rest.missed), rest.through, rest.next_fire)
        while following is not None and following <= now:
            chunk.append(following)
            following = next_fire(schedule, following)

    on_time = [moment for moment in chunk if now - moment <= ON_TIME]
    late = chunk[: len(chunk) - len(on_time)]
    kept = _kept(late, on_time, now, misfire)
    missed = _missed(late[: len(late) - len(kept)], now, misfire)
    return FirePlan(kept + on_time, missed, chunk[-1], following)


def limited(plan: FirePlan, runs_left: int | None) -> FirePlan:
    """The plan of a job whose schedule makes only so many more runs. It ends with the last of them: later fires are
    neither run nor missed."""
    if runs_left is None or len(plan.runs) < runs_left:
        return plan
    runs, nominal_runs = plan.runs[:runs_left], plan.nominal_runs[:runs_left]
    return FirePlan(
        runs,
        plan.missed,
        runs[-1] if runs else plan.through,
        None,
        nominal_runs[-1] if nominal_runs else plan.nominal,
        nominal_runs,
    )


def missed_fires(schedule: Schedule, first: datetime, until: datetime, reason: str) -> list[Missed]:
    """The fires in [first, until] as one range, or nothing if there are none."""
    before = first - _MOMENT
    newest = newest_fires(schedule, before, until, 1)
    if not newest:
        return []
    begin = next_fire(schedule, before)
    assert begin is not None
    return [Missed(begin, newest[0], count_fires(schedule, before, until), reason)]


def _miss_oldest(schedule: Schedule, due: datetime, now: datetime, misfire: MisfirePolicy) -> FirePlan:
    """Plan the oldest of many fires. They are missed in any case, and they are counted. `cap` of the late ones and all
    that are on time are left."""
    on_time = count_fires(schedule, max(due, now - ON_TIME - _MOMENT), now)
    last, following = newest_fires(schedule, due, now, min(misfire.cap, _ONE_BY_ONE - 100) + on_time + 1)[:2]
    missed: list[Missed] = []
    first: datetime | None = due
    if misfire.policy != "skip" and misfire.grace is not None:
        # The last moment that is too old, in whole microseconds.
        too_old = now - timedelta(microseconds=math.floor(misfire.grace * 1e6) + 1)
        missed += missed_through(schedule, due, min(too_old, last), "older than the misfire grace")
        first = next_fire(schedule, missed[0].last) if missed else due
    if first is not None:
        missed += missed_through(schedule, first, last, _REASONS[misfire.policy])
    return FirePlan([], missed, last, following)


def missed_through(schedule: Schedule, first: datetime, until: datetime, reason: str) -> list[Missed]:
    """The range of `first`, which is a fire, and all fires after it up to `until`."""
    if first > until:
        return []
    newest = newest_fires(schedule, first, until, 1)
    return [Missed(first, newest[0] if newest else first, 1 + count_fires(schedule, first, until), reason)]


def _joined(before: list[Missed], after: list[Missed]) -> list[Missed]:
    """The ranges of both; where they meet, two with the same reason are one."""
    if not (before and after and before[-1].reason == after[0].reason):
        return before + after
    first, second = before[-1], after[0]
    return [*before[:-1], Missed(first.first, second.last, first.count + second.count, first.reason), *after[1:]]


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
