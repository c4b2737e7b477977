"""A stored schedule as the member `schedule` of a request, so that a patch can name some of its members."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import msgspec

from mainspring.domain.intake.cron import UTC_NAMES
from mainspring.domain.intake.schedule import WAYS
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind
from mainspring.domain.schedules.zones import check_timezone, zone
from mainspring.wire.jobs import DstIn, ScheduleIn


def schedule_as_given(stored: Schedule, timezone: str | None, field: str) -> ScheduleIn:
    """A recurring schedule as it would be requested, with its times in `timezone`, or else in its own."""
    named = check_timezone(timezone, field) if timezone is not None else stored.timezone
    place = zone(named)
    utc = named in UTC_NAMES  # where no clock is moved
    in_zone = stored.kind is not ScheduleKind.EVERY or stored.calendar is not None
    return ScheduleIn(
        every=stored.every,
        cron=stored.cron,
        rrule=stored.rrule,
        timezone=named if in_zone or timezone is not None else None,
        anchor=_time(stored.anchor, place) if stored.kind is ScheduleKind.EVERY else None,
        calendar=stored.calendar,
        outside=stored.outside,
        jitter=stored.jitter,
        start=_time(stored.start, place),
        end=_time(stored.end, place),
        max_runs=stored.max_runs,
        exdates=None if stored.exdates is None else [one.astimezone(place).isoformat() for one in stored.exdates],
        dst=None if (stored.gap is None and stored.fold is None) or utc else DstIn(stored.gap, stored.fold),
    )


def changes_members(schedule: ScheduleIn) -> bool:
    """Whether the schedule of a patch names members and no way to say when."""
    return schedule != ScheduleIn() and all(getattr(schedule, way) is None for way in (*WAYS, "after"))


def with_same_start(stored: Schedule, changed: Schedule) -> Schedule:
    """The changed schedule. If its rule is the same and says nothing about its start, it goes on from the old one."""
    same = (
        changed.anchor is None
        and changed.kind is stored.kind
        and (
            changed.every == stored.every
            if changed.kind is ScheduleKind.EVERY
            else changed.kind is ScheduleKind.RRULE
            and (changed.rrule, changed.timezone) == (stored.rrule, stored.timezone)
        )
    )
    return msgspec.structs.replace(changed, anchor=stored.anchor) if same else changed


def is_plain(stored: Schedule) -> bool:
    """Whether there is nothing but a cron line and a zone."""
    return stored == Schedule(kind=stored.kind, cron=stored.cron, timezone=stored.timezone, seed=stored.seed)


def _time(moment: datetime | None, place: ZoneInfo) -> str | None:
    return None if moment is None else moment.astimezone(UTC).astimezone(place).isoformat()
