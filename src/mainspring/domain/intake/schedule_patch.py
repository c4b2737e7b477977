"""A stored schedule as the member `schedule` of a request, so that a patch can name some of its members."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from msgspec import UNSET

from mainspring.domain.intake.cron import UTC_NAMES
from mainspring.domain.intake.schedule import WAYS
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind
from mainspring.domain.schedules.zones import check_timezone, zone
from mainspring.wire.events import EventsTogether
from mainspring.wire.schedules import DstIn, ScheduleChange, ScheduleIn

_ZONE_FIELD = "schedule.timezone"


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


def whole(change: ScheduleChange) -> ScheduleIn:
    """The schedule that a change describes by itself."""
    return ScheduleIn(**{name: value for name, value in _named(change).items() if value is not None})


def with_members_of(stored: Schedule, change: ScheduleChange, timezone: str | None) -> ScheduleIn | None:
    """The stored schedule with the members of a change, which removes those that are null. None if the change names a
    way to say when, or nothing. `timezone`: another zone, if the change names none."""
    named = _named(change)
    if any(named.get(way) is not None for way in WAYS):
        return None
    members = {name: value for name, value in named.items() if name not in WAYS}
    if not members:
        return None
    if members.get("calendar", stored) is None:
        members.setdefault("outside", None)
    given = members.get("timezone")
    base = schedule_as_given(stored, timezone if given is None else given, "timezone" if given is None else _ZONE_FIELD)
    return msgspec.structs.replace(base, **members)


def with_members_of_event(stored: Schedule, change: ScheduleChange) -> ScheduleIn:
    """The stored schedule by an event with the members of a change, which removes those that are null. A change that
    names a way to say when is a whole one."""
    named = _named(change)
    if any(named.get(way) is not None for way in WAYS):
        return whole(change)
    batch = stored.batch
    base = ScheduleIn(
        event=stored.event,
        condition=stored.condition,
        batch=None if batch is None else EventsTogether(batch, stored.batch_wait or 0.0, stored.by_key),
        debounce=stored.debounce,
    )
    return msgspec.structs.replace(base, **{name: value for name, value in named.items() if name not in WAYS})


def with_other_line(stored: Schedule, cron: str, timezone: str | None) -> ScheduleIn:
    """The stored schedule with a cron line in the place of its rule."""
    kept = schedule_as_given(stored, timezone, "timezone")
    return msgspec.structs.replace(kept, cron=cron, every=None, anchor=None, rrule=None, exdates=None)


def _named(change: ScheduleChange) -> dict[str, Any]:
    return {name: value for name in change.__struct_fields__ if (value := getattr(change, name)) is not UNSET}


def is_plain(stored: Schedule) -> bool:
    """Whether there is nothing but a cron line and a zone."""
    return stored == Schedule(kind=stored.kind, cron=stored.cron, timezone=stored.timezone, seed=stored.seed)


def _time(moment: datetime | None, place: ZoneInfo) -> str | None:
    return None if moment is None else moment.astimezone(UTC).astimezone(place).isoformat()
