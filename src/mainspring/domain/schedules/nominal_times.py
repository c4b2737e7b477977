"""Fires and their nominal times. Jobs with the same nominal time belong together, whatever their jitter. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from mainspring.domain.schedules.fires import next_fire, nominal
from mainspring.domain.schedules.schedule import Schedule

_MOMENT = timedelta(microseconds=1)


def nominal_of(schedule: Schedule, fire: datetime) -> datetime:
    """The nominal time of a fire: the newest one up to it, since no fire reaches the next one. A time that is no fire
    and has none within the jitter stands for itself. Raises RulesNotLoaded."""
    if schedule.jitter is None:
        return fire
    found = nominal(schedule).newest(_before(fire, timedelta(seconds=schedule.jitter)), fire, 1)
    return found[-1] if found else fire


def fire_of(schedule: Schedule, moment: datetime) -> datetime | None:
    """The fire whose nominal time is `moment`. None if the schedule has none. Raises RulesNotLoaded."""
    fire = next_fire(schedule, _before(moment, _MOMENT))
    return fire if fire is not None and nominal_of(schedule, fire) == moment else None


def _before(moment: datetime, span: timedelta) -> datetime:
    try:
        return moment - span
    except OverflowError:
        return moment
