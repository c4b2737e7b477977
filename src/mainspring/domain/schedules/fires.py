"""The fires of a schedule. Pure functions: the same schedule and the same `after` always give the same next fire.

Rules that change fires wrap each other in a fixed order, from the inside: the rule of the schedule (every, cron,
rrule), its calendar, its jitter, its start and end. So a fire that a calendar moves has jitter too, and none is after
the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache

from mainspring.domain.schedules.bounds import Bounded
from mainspring.domain.schedules.calendar_fires import within_calendar
from mainspring.domain.schedules.cron_fires import CronFires
from mainspring.domain.schedules.cron_hash import without_hash
from mainspring.domain.schedules.jitter import Jittered
from mainspring.domain.schedules.occurrences import Every, Nothing, Occurrences, Once, each
from mainspring.domain.schedules.rrule import rule_fires
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind

_MOMENT = timedelta(microseconds=1)


def next_fire(schedule: Schedule, after: datetime) -> datetime | None:
    """The first fire strictly after `after` (aware), in UTC. None if there is none."""
    return occurrences(schedule).next(after)


def first_fire(schedule: Schedule, after: datetime, since: datetime) -> datetime | None:
    """The first fire after `after` of a schedule that holds since `since`: the nominal time of a fire with jitter is
    after that too, so that a change of the jitter does not repeat a fire."""
    if schedule.jitter is not None:
        begin = nominal(schedule).next(since)
        if begin is None:
            return None
        after = max(after, begin - _MOMENT)
    return next_fire(schedule, after)


def first_fire_instead(schedule: Schedule, before: Schedule, now: datetime, since: datetime) -> datetime | None:
    """The first fire of a schedule that replaces `before` now. The job has fired for `since`, or was created then; all
    fires of `before` up to now are dealt with, and do not fire again. If a nominal time has come, and the jitter of
    `before` has held up its fire, that fire is not lost: it has its new time, which may be past."""
    after = max(now, since)
    if before.jitter is None or not schedule.recurring:
        return first_fire(schedule, after, since)
    dealt_with = max([since, *newest_fires(before, since, now, 1)])
    held_up = _held_up(before, dealt_with, now)
    if held_up is not None and nominal(schedule).next(dealt_with) == held_up:
        return next_fire(schedule, held_up - _MOMENT)
    return first_fire(schedule, after, dealt_with)


def _held_up(schedule: Schedule, dealt_with: datetime, now: datetime) -> datetime | None:
    """The nominal time after `dealt_with` that has come and fires after now."""
    moment = nominal(schedule).next(dealt_with)
    if moment is None or moment > now:
        return None
    fire, following = next_fire(schedule, now), nominal(schedule).next(moment)
    return moment if fire is not None and (following is None or fire < following) else None


def fires(schedule: Schedule, after: datetime) -> Iterator[datetime]:
    """All fires strictly after `after`, in order."""
    return each(occurrences(schedule), after)


def count_fires(schedule: Schedule, after: datetime, until: datetime) -> int:
    """The number of fires in (after, until]."""
    return 0 if until <= after else occurrences(schedule).count(after, until)


def newest_fires(schedule: Schedule, after: datetime, until: datetime, count: int) -> list[datetime]:
    """The last `count` fires in (after, until], in order; all of them if there are fewer."""
    return [] if count <= 0 else occurrences(schedule).newest(after, until, count)


@lru_cache(maxsize=4096)
def occurrences(schedule: Schedule) -> Occurrences:
    """The fires of a schedule. Raises RulesNotLoaded if it has a calendar whose rules are not known here."""
    fires = nominal(schedule)
    if schedule.jitter is not None:
        fires = Jittered(fires, schedule.jitter, schedule.seed or 0)
    if schedule.start is not None or schedule.end is not None:
        fires = Bounded(fires, schedule.start, schedule.end)
    return fires


def nominal(schedule: Schedule) -> Occurrences:
    """The fires before jitter, start and end."""
    found = _of_rule(schedule)
    return found if schedule.calendar is None else within_calendar(found, schedule)


def _of_rule(schedule: Schedule) -> Occurrences:
    match schedule.kind:
        case ScheduleKind.NOW | ScheduleKind.AFTER | ScheduleKind.MANUAL:
            return Nothing()
        case ScheduleKind.AT:
            return Nothing() if schedule.at is None else Once(schedule.at)
        case ScheduleKind.EVERY:
            assert schedule.every is not None and schedule.anchor is not None
            return Every(schedule.every, schedule.anchor)
        case ScheduleKind.CRON:
            assert schedule.cron is not None
            # Without a seed there is no job yet. Then H has the values of some job.
            line = without_hash(schedule.cron, schedule.seed or 0)
            return CronFires(line, schedule.timezone, schedule.gap, schedule.fold)
        case ScheduleKind.RRULE:
            assert schedule.rrule is not None and schedule.anchor is not None
            return rule_fires(
                schedule.rrule,
                schedule.timezone,
                schedule.anchor,
                started=schedule.start is not None,
                exdates=schedule.exdates,
                gap=schedule.gap,
                fold=schedule.fold,
            )
