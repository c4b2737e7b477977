"""Fires and their nominal times. A nominal time has one fire, whatever becomes of the schedule. Jobs with the same
nominal time belong together, whatever their jitter. Pure.

A nominal time is what the rule and the calendar say, before jitter. A job stores up to which one all are dealt with:
they have run, are recorded as skipped or missed, or came before the job. None of these fires again.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from mainspring.domain.schedules.calendar_fires import waiting_since
from mainspring.domain.schedules.fires import by_rule, jittered, next_fire, nominal
from mainspring.domain.schedules.schedule import Schedule

_MOMENT = timedelta(microseconds=1)


def nominal_of(schedule: Schedule, fire: datetime) -> datetime:
    """The nominal time of a fire: the newest one up to it, since no fire reaches the next one. A time that is no fire
    and has none within the jitter stands for itself. Raises RulesNotLoaded."""
    return fire if schedule.jitter is None else jittered(schedule).nominal_of(fire) or fire


def nominal_and_next(schedule: Schedule, fire: datetime) -> tuple[datetime, datetime | None]:
    """The nominal time of a fire, and the first fire that has a later one, also if `fire` is one that the schedule has
    no more. For schedules with jitter. Raises RulesNotLoaded."""
    moment, following = jittered(schedule).around(fire)
    if following is not None and schedule.start is not None and following < schedule.start:
        following = next_fire(schedule, following)
    if following is not None and schedule.end is not None and following > schedule.end:
        following = None
    return moment or fire, following


def fire_of(schedule: Schedule, moment: datetime) -> datetime | None:
    """The fire whose nominal time is `moment`. None if the schedule has none. Raises RulesNotLoaded."""
    fire = next_fire(schedule, _before(moment, _MOMENT))
    return fire if fire is not None and nominal_of(schedule, fire) == moment else None


def latest(*moments: datetime | None) -> datetime | None:
    """The latest of those that are given."""
    return max((moment for moment in moments if moment is not None), default=None)


def first_fire(schedule: Schedule, after: datetime, dealt_with: datetime | None) -> datetime | None:
    """The first fire after `after` whose nominal time is not dealt with."""
    if dealt_with is None:
        return next_fire(schedule, after)
    if schedule.jitter is not None:
        begin = nominal(schedule).next(dealt_with)
        if begin is None:
            return None
        return next_fire(schedule, max(after, begin - _MOMENT))
    return next_fire(schedule, max(after, dealt_with))


def first_fire_instead(
    schedule: Schedule, before: Schedule, following: datetime | None, now: datetime, dealt_with: datetime | None
) -> datetime | None:
    """The first fire of a schedule that replaces `before` now. `following`: the next fire by `before`; all earlier ones
    are dealt with.

    The new schedule begins with its first time after now. But if the time of `following` has come by the rule, and its
    jitter or its calendar has held it up until now, then it is not lost: if the new schedule has that time too, it
    begins with that. The fire may then be past."""
    rule = by_rule(schedule)
    begin = rule.next(now)
    if following is not None and before.recurring:
        held_up = _held_up_since(before, following)
        if held_up <= now and rule.next(_before(held_up, _MOMENT)) == held_up:
            begin = held_up
    if begin is None:
        return None
    after = _before(begin, _MOMENT)
    first = nominal(schedule).next(after if dealt_with is None else max(after, dealt_with))
    return None if first is None else next_fire(schedule, first - _MOMENT)


def _held_up_since(schedule: Schedule, fire: datetime) -> datetime:
    """The time of a fire by the rule: before its jitter, and before its calendar has moved it."""
    moment = nominal_of(schedule, fire)
    return moment if schedule.calendar is None else waiting_since(by_rule(schedule), schedule, moment)


def _before(moment: datetime, span: timedelta) -> datetime:
    try:
        return moment - span
    except OverflowError:
        return moment
