"""What a schedule does, for people: its next fires, how many a day, and what is special about them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile

import msgspec

from mainspring.domain.intake.schedule import read_schedule
from mainspring.domain.intake.times import parse_time
from mainspring.domain.schedules.calendar_days import HORIZON
from mainspring.domain.schedules.dst_notes import dst_notes
from mainspring.domain.schedules.fires import count_fires, fires, newest_fires, next_fire
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind, for_job
from mainspring.domain.schedules.spreading import on_the_hour, spread
from mainspring.domain.schedules.words import explain
from mainspring.domain.schedules.zones import zone
from mainspring.wire.jobs import JobRequest
from mainspring.wire.preview import FireTime, PreviewRequest, SchedulePreview, SpreadView

_NO_JOB = "preview"  # H and jitter need an id
_YEAR = timedelta(days=364)  # whole weeks
_FURTHEST = timedelta(days=HORIZON)
_INSTANT = timedelta(microseconds=1)
_WHEN = ("schedule", "schedule_type", "schedule_time", "cron_expression", "cron", "timezone", "delay")


class Asked(msgspec.Struct, frozen=True):
    """A preview that is being made. start: the time from which fires are listed."""

    schedule: Schedule
    start: datetime
    now: datetime
    count: int
    job_id: str | None

    @property
    def after(self) -> datetime:
        """The fires are those strictly after this."""
        return self.start - _INSTANT

    @property
    def most(self) -> int:
        """How many fires there are to list: those until max_runs are made, if every fire from now on is a run."""
        left = self.schedule.max_runs
        return self.count if left is None else max(0, min(self.count, left - self._passed()))

    def _passed(self) -> int:
        return count_fires(self.schedule, self.now, self.after)


def when_of(request: PreviewRequest) -> JobRequest:
    """The schedule of the preview as the request of a job."""
    return JobRequest(**{name: getattr(request, name) for name in _WHEN})


def asked(request: PreviewRequest, tenant: int, now: datetime, schedule: Schedule | None = None) -> Asked:
    """Raises the errors that the creation of a job with this schedule raises. `schedule`: what intake has made of it,
    where more than the request is needed for that."""
    found = read_schedule(when_of(request), now) if schedule is None else schedule
    start = now if request.from_ is None else parse_time(request.from_, "from")
    stored = for_job(found, tenant, request.job_id or _NO_JOB, now)
    return Asked(stored, start, now, request.n, request.job_id)


def listed(asked: Asked) -> Iterator[datetime]:
    """The first `asked.most` fires after `asked.after`. With a calendar those of the next 50 years: holidays that are
    later than that are not known."""
    found = islice(fires(asked.schedule, asked.after), asked.most)
    if asked.schedule.calendar is None:
        return found
    return takewhile(lambda moment: moment - asked.start <= _FURTHEST, found)


def previewed(asked: Asked, fires: list[datetime], *, cut: bool = False) -> SchedulePreview:
    """The view. `fires`: those of `listed`. `cut`: there are more, and it takes too long to list them."""
    schedule = asked.schedule
    if schedule.kind is ScheduleKind.NOW:
        fires = [asked.now.astimezone(UTC)]
    # Without a job there is no value of H to explain.
    explained = schedule if asked.job_id is not None else msgspec.structs.replace(schedule, seed=None)
    return SchedulePreview(
        schedule=schedule.words(),
        schedule_type=schedule.kind.value,
        explanation=explain(explained),
        timezone=schedule.timezone,
        from_=asked.start.astimezone(UTC),
        fires=[fire_time(moment, schedule.timezone) for moment in fires],
        fires_per_day=_per_day(asked, fires),
        notes=[*notes(asked, fires, cut=cut), *(dst_notes(schedule, asked.after, fires[-1]) if fires else ())],
        spread=_spread(schedule, fires),
    )


def fire_time(moment: datetime, timezone: str) -> FireTime:
    local = moment.astimezone(zone(timezone))
    return FireTime(moment, local.isoformat(), f"{local:%A}")


def spread_view(schedule: Schedule, fires: list[datetime], reason: str) -> SpreadView | None:
    found = spread(schedule, fires)
    return None if found is None else SpreadView(reason, found.cron, found.jitter)


def _spread(schedule: Schedule, fires: list[datetime]) -> SpreadView | None:
    if not on_the_hour(schedule, fires):
        return None
    return spread_view(schedule, fires, "it fires on the hour, when many other jobs do")


def _per_day(asked: Asked, fires: list[datetime]) -> float:
    schedule, after = asked.schedule, asked.after
    if not schedule.recurring:
        return 0.0
    if asked.most < asked.count:  # the list ends with the last run
        return round(len(fires) / max(1.0, (fires[-1] - after).total_seconds() / 86400), 4) if fires else 0.0
    until = after + _YEAR
    count = count_fires(schedule, after, until)
    if count and next_fire(schedule, until) is None:
        (until,) = newest_fires(schedule, after, until, 1)
    days = max(1.0, (until - after).total_seconds() / 86400)
    return round(count / days, 4)


def _end_of_list(asked: Asked, fires: list[datetime], *, cut: bool) -> str:
    if cut:
        return f"the list ends after {len(fires)} fires: the calendar leaves so few that it takes long to find them"
    if asked.schedule.calendar is not None and fires and next_fire(asked.schedule, fires[-1]) is not None:
        return "the list ends after 50 years, as far as a calendar is looked at"
    return "there are no more fires" if fires else "there are no fires from this time on"


def notes(asked: Asked, fires: list[datetime], *, cut: bool) -> list[str]:
    """What is special about these fires, except for what the changes of the clocks do to them."""
    schedule, notes = asked.schedule, []
    if schedule.seed is not None and asked.job_id is None:
        notes.append("H and jitter depend on the job's id: these are those of some job; give a job id for another")
    match schedule.kind:
        case ScheduleKind.NOW:
            notes.append("a job with it runs at once")
        case ScheduleKind.AFTER:
            notes.append("a job with it runs after other jobs, at no time of its own")
        case ScheduleKind.EVENT:
            notes.append("a job with it runs when the event is emitted, at no time of its own")
        case ScheduleKind.MANUAL:
            notes.append("a job with it runs only when somebody runs it")
        case ScheduleKind.AT if schedule.at is not None and schedule.at <= asked.now:
            notes.append("the time has passed: a job with it runs at once")
        case _ if schedule.recurring and len(fires) < asked.count:
            notes.append(_end_of_list(asked, fires, cut=cut))
    return notes
