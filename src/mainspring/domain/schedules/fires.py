"""The fires of a schedule. Pure functions: the same schedule and the same `after` always give the same next fire.

Rules that change fires wrap each other in a fixed order, from the inside: the rule of the schedule (every, cron,
rrule), its calendar, its jitter, its start and end. So a fire that a calendar moves has jitter too, and none is after
the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache

from mainspring.domain.schedules.bounds import Bounded
from mainspring.domain.schedules.calendar_fires import within_calendar
from mainspring.domain.schedules.cron_fires import CronFires
from mainspring.domain.schedules.cron_hash import without_hash
from mainspring.domain.schedules.jitter import Jittered
from mainspring.domain.schedules.occurrences import Every, NoOccurrence, Occurrences, Once, each
from mainspring.domain.schedules.rrule import rule_fires
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind


def next_fire(schedule: Schedule, after: datetime) -> datetime | None:
    """The first fire strictly after `after` (aware), in UTC. None if there is none."""
    return occurrences(schedule).next(after)


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
    fires: Occurrences = nominal(schedule) if schedule.jitter is None else jittered(schedule)
    if schedule.start is not None or schedule.end is not None:
        fires = Bounded(fires, schedule.start, schedule.end)
    return fires


@lru_cache(maxsize=4096)
def jittered(schedule: Schedule) -> Jittered:
    """The fires of a schedule with jitter, before start and end. Raises RulesNotLoaded."""
    assert schedule.jitter is not None
    return Jittered(nominal(schedule), schedule.jitter, schedule.seed or 0)


def nominal(schedule: Schedule) -> Occurrences:
    """The fires before jitter, start and end. Raises RulesNotLoaded."""
    found = by_rule(schedule)
    return found if schedule.calendar is None else within_calendar(found, schedule)


def by_rule(schedule: Schedule) -> Occurrences:
    """The fires before the calendar, too."""
    match schedule.kind:
        case ScheduleKind.NOW | ScheduleKind.AFTER | ScheduleKind.EVENT | ScheduleKind.MANUAL:
            return NoOccurrence()
        case ScheduleKind.AT:
            return NoOccurrence() if schedule.at is None else Once(schedule.at)
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
