"""When a job is due. Pure functions: the same schedule and the same `after` always give the same next fire."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime
from enum import StrEnum

import msgspec

from mainspring.domain.durations import format_duration
from mainspring.domain.schedules.cron_hash import has_hash, without_hash
from mainspring.domain.schedules.rrule_text import body_of


class ScheduleKind(StrEnum):
    NOW = "IMMEDIATE"
    AT = "FUTURE"
    EVERY = "INTERVAL"
    CRON = "CRON"
    RRULE = "RRULE"
    AFTER = "AFTER"
    EVENT = "EVENT"
    MANUAL = "MANUAL"


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of now, at, every, cron, rrule, after, event, manual, and what changes its fires (see fires.py).

    anchor: where an every-schedule or a rule begins, by default its start or the job's creation time. seed: a hash of
    the job's id and tenant, from which `H` and jitter take their values. gap, fold: what a cron line or a rule does
    when clocks are moved forward or back. start, end: no fire is before or after them. max_runs: how many runs the
    schedule makes. outside: what happens to a fire at a time that the calendar excludes. calendar_version,
    calendar_rules: which version of the calendar decides the fires, and the digest of its rules (calendar_rules.py).
    after: the jobs after which it fires (domain/dependencies.py); their ends set the next fire.
    event: the name of the events that start it. condition: in CEL (conditions/). batch, batch_wait, by_key: how many
    events share a run, and how long the first one waits for others. debounce: how long no other event of the key comes.
    """

    kind: ScheduleKind
    at: datetime | None = None
    every: float | None = None
    anchor: datetime | None = None
    cron: str | None = None
    timezone: str = "UTC"
    seed: int | None = None
    gap: str | None = None
    fold: str | None = None
    rrule: str | None = None
    exdates: tuple[datetime, ...] | None = None
    start: datetime | None = None
    end: datetime | None = None
    max_runs: int | None = None
    jitter: float | None = None
    calendar: str | None = None
    calendar_version: int | None = None
    calendar_rules: str | None = None
    outside: str | None = None
    after: tuple[str, ...] | None = None
    event: str | None = None
    condition: str | None = None
    batch: int | None = None
    batch_wait: float | None = None
    by_key: bool = False
    debounce: float | None = None

    @property
    def recurring(self) -> bool:
        return self.kind in (ScheduleKind.EVERY, ScheduleKind.CRON, ScheduleKind.RRULE)

    @property
    def one_time(self) -> bool:
        return self.kind in (ScheduleKind.NOW, ScheduleKind.AT)

    def words(self) -> str:
        """The schedule in the short form in which users write it."""
        words = self._rule_in_words()
        return words if self.calendar is None else f"{words}, calendar {self.calendar}"

    def _rule_in_words(self) -> str:
        match self.kind:
            case ScheduleKind.NOW:
                return "now"
            case ScheduleKind.AT:
                return f"at {self.at.isoformat() if self.at else '?'}"
            case ScheduleKind.EVERY:
                return f"every {format_duration(self.every or 0.0)}"
            case ScheduleKind.CRON:
                resolved = f" = {without_hash(self.cron or '', self.seed or 0)}" if has_hash(self.cron) else ""
                return f"{self.cron}{resolved} ({self.timezone})"
            case ScheduleKind.RRULE:
                return f"{body_of(self.rrule or '')} ({self.timezone})"
            case ScheduleKind.AFTER:
                return f"after {', '.join(self.after or ())}"
            case ScheduleKind.EVENT:
                return f"on {self.event}{f' if {self.condition}' if self.condition else ''}"
            case ScheduleKind.MANUAL:
                return "manual"


NOW = Schedule(kind=ScheduleKind.NOW)
MANUAL = Schedule(kind=ScheduleKind.MANUAL)


def for_job(schedule: Schedule, tenant: int, job_id: str, now: datetime) -> Schedule:
    """The schedule as the job stores it. An every-schedule without an anchor is anchored at `now`: its first fire is
    one interval later. A rule without a start begins after `now`."""
    if schedule.kind in (ScheduleKind.EVERY, ScheduleKind.RRULE) and schedule.anchor is None:
        schedule = msgspec.structs.replace(schedule, anchor=now.astimezone(UTC).replace(microsecond=0))
    return with_seed(schedule, tenant, job_id)


def with_seed(schedule: Schedule, tenant: int, job_id: str) -> Schedule:
    """The schedule with the seed of the job, if it needs one. A job has one seed for ever: no change gives it another
    one."""
    if schedule.jitter is None and not has_hash(schedule.cron):
        return schedule
    seed = zlib.crc32(f"{tenant}/{job_id}".encode())
    return schedule if schedule.seed == seed else msgspec.structs.replace(schedule, seed=seed)
