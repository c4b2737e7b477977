"""Explains a schedule while it is written: what is wrong with it by field, or its fires and warnings. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from mainspring.domain.errors import MainspringError
from mainspring.domain.preview.heat_map import LEAST_FIRES, NOTABLE
from mainspring.domain.preview.preview import Asked, fire_time, notes, previewed, spread_view
from mainspring.domain.schedules.dst_notes import dst_notes
from mainspring.domain.schedules.forecast import Forecast
from mainspring.domain.schedules.minutes import MINUTE
from mainspring.domain.schedules.schedule import Schedule
from mainspring.wire.preview import FireTime, PreviewRequest, ScheduleExplanation, ScheduleWarning
from mainspring.wire.problems import FieldProblem
from mainspring.wire.schedules import ScheduleIn

_YEAR = timedelta(days=366)
# Without these there is nothing left to check.
_DECISIVE = frozenset({"at", "every", "cron", "rrule", "after"})


class ExplainedPileUp(msgspec.Struct, frozen=True):
    """Fires of a schedule in minutes in which many jobs fire already. at: the fire in the fullest of them."""

    at: datetime
    jobs_fires: int
    fires: int


def without(request: PreviewRequest, field: str | None) -> PreviewRequest | None:
    """The request without a wrong field, so that the others can be checked. None if they depend on it."""
    outer, _, inner = (field or "").partition(".")
    member = inner.partition(".")[0].partition("[")[0]
    schedule = request.schedule
    if outer == "schedule" and isinstance(schedule, ScheduleIn):
        if member in _DECISIVE or getattr(schedule, member, None) is None:
            return None
        return msgspec.structs.replace(request, schedule=msgspec.structs.replace(schedule, **{member: None}))
    if outer == "from":
        return msgspec.structs.replace(request, from_=None)
    if outer in ("timezone", "schedule_type") and getattr(request, outer) is not None:
        return msgspec.structs.replace(request, **{outer: None})
    return None


def problem(error: MainspringError) -> FieldProblem:
    """What is wrong with a field, and what to write instead."""
    advice = "; ".join(error.advice())
    return FieldProblem(field=error.field or "schedule", code=error.code, detail=error.detail, hint=advice or None)


def pile_up(forecast: Forecast, fires: list[datetime]) -> ExplainedPileUp | None:
    """Which of these fires meet many of other jobs, if any does. The forecast ends after days: later fires are not
    evaluated."""
    average = sum(forecast.counts) / max(1, len(forecast.counts))
    least = max(LEAST_FIRES, NOTABLE * average)
    found = [
        (forecast.counts[minute], moment)
        for moment in fires
        if 0 <= (minute := (moment - forecast.start) // MINUTE) < len(forecast.counts)
        and forecast.counts[minute] >= least
    ]
    if not found:
        return None
    most, at = max(found, key=lambda each: (each[0], -each[1].timestamp()))
    return ExplainedPileUp(at, most, len(found))


def explained(asked: Asked, fires: list[datetime], piled: ExplainedPileUp | None, *, cut: bool) -> ScheduleExplanation:
    """The view. `fires`: those of `listed`. `cut`: there are more, and it takes too long to list them."""
    schedule, seen = asked.schedule, previewed(asked, fires, cut=cut)
    warnings = [ScheduleWarning("note", text) for text in notes(asked, fires, cut=cut)]
    if fires:
        ends = not cut and len(fires) < asked.count
        until = fires[-1] if ends else max(fires[-1], asked.start + _YEAR)
        warnings += [ScheduleWarning("clock_change", text) for text in dst_notes(schedule, asked.after, until)]
    spread = seen.spread
    if piled is not None:
        warnings.append(_warning(piled, fire_time(piled.at, schedule.timezone), len(fires)))
        spread = spread_view(schedule, fires, "many jobs fire in the same minute") or spread
    return ScheduleExplanation(
        valid=True,
        words=seen.explanation,
        schedule=seen.schedule,
        schedule_type=seen.schedule_type,
        timezone=seen.timezone,
        fires=seen.fires,
        fires_per_day=seen.fires_per_day,
        warnings=warnings,
        spread=spread,
    )


def may_meet_others(schedule: Schedule) -> bool:
    """Whether the fires of a schedule are known ahead, so that they can be compared with those of others."""
    return schedule.recurring or schedule.at is not None


def _warning(piled: ExplainedPileUp, fire: FireTime, listed: int) -> ScheduleWarning:
    which = "this fire is" if listed == 1 else f"{piled.fires} of these {listed} fires are"
    text = f"{which} in minutes with many others: {piled.jobs_fires:,} fires of jobs at {fire.local}"
    return ScheduleWarning("pile_up", text, piled.at)
