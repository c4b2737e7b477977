"""The calendars of a box. Jobs follow a change at once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from mainspring.domain.errors import Conflict, VersionMismatch
from mainspring.domain.intake.calendar import read_calendar
from mainspring.domain.intake.calendar_names import check_calendar_name, leaves_no_fire, no_calendar, unknown_calendar
from mainspring.domain.job import JobDefinition
from mainspring.domain.schedules.calendar_rules import know_rules, rules_to_text
from mainspring.domain.schedules.fires import next_fire
from mainspring.domain.schedules.nominal_times import first_fire_instead
from mainspring.domain.schedules.schedule import for_job
from mainspring.domain.transitions import JobStatus
from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.sdk.client.core import Call
from mainspring.sdk.testing.call_parsing import Route, read_body, read_page
from mainspring.sdk.testing.engine import Engine
from mainspring.sdk.testing.records import BoxJob
from mainspring.wire.calendars import CalendarList, CalendarRequest, CalendarView, HolidaysIn

_ALIVE = (JobStatus.SCHEDULED, JobStatus.PAUSED)


@dataclass(slots=True)
class BoxCalendar:
    """rules_version: the version in which the rules changed last."""

    name: str
    version: int
    rules_version: int
    rules: CalendarRequest
    digest: str
    created_at: datetime
    updated_at: datetime
    recomputed: int = 0


class LocalCalendars:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._calendars: dict[str, BoxCalendar] = {}

    def routes(self) -> dict[str, Route]:
        return {
            "GET calendars": self._list,
            "GET calendars/{}": lambda name, _: self._view(self._calendar(name)),
            "PUT calendars/{}": self._put,
            "DELETE calendars/{}": self._delete,
        }

    def resolved(self, definition: JobDefinition) -> JobDefinition:
        """The definition with the current rules of its calendar. Raises InvalidInput."""
        name, now = definition.schedule.calendar, self._engine.now
        if name is None:
            return definition
        calendar = self._calendars.get(name)
        if calendar is None:
            raise unknown_calendar(name, self._calendars)
        schedule = msgspec.structs.replace(
            definition.schedule, calendar_version=calendar.rules_version, calendar_rules=calendar.digest
        )
        if next_fire(for_job(schedule, DEFAULT_TENANT, definition.job_id or "-", now), now) is None:
            raise leaves_no_fire(name)
        return msgspec.structs.replace(definition, schedule=schedule)

    def _list(self, _: str, call: Call[Any]) -> CalendarList:
        page, following = read_page(sorted(self._calendars.values(), key=lambda one: one.name), call)
        return CalendarList([self._view(one) for one in page], following)

    def _put(self, name: str, call: Call[Any]) -> CalendarView:
        check_calendar_name(name)
        now = self._engine.now
        rules = read_calendar(read_body(call, CalendarRequest), now)
        before = self._calendars.get(name)
        _check_version(before, name, call)
        digest = know_rules(rules_to_text(rules))
        if before is None:
            self._calendars[name] = BoxCalendar(name, 1, 1, rules, digest, now, now)
        elif rules != before.rules:
            changed = digest != before.digest
            before.version, before.updated_at, before.rules, before.digest = before.version + 1, now, rules, digest
            if changed:
                before.rules_version, before.recomputed = before.version, 0
                for job in self._users(name, *_ALIVE, JobStatus.COMPLETED):
                    self._follow(job, before)
        return self._view(self._calendars[name])

    def _follow(self, job: BoxJob, calendar: BoxCalendar) -> None:
        """What is due, or was held back by a pause, belongs to the old rules."""
        schedule = msgspec.structs.replace(
            job.definition.schedule, calendar_version=calendar.rules_version, calendar_rules=calendar.digest
        )
        before, now = job.definition.schedule, self._engine.now
        if job.status is JobStatus.PAUSED:
            self._engine.miss(job, job.paused_from)
        else:
            self._engine.fire_due(job)
        following = None
        if job.runs_left != 0:
            following = first_fire_instead(schedule, before, self._engine.following(job), now, job.dealt_with)
        if job.status is JobStatus.PAUSED:
            job.paused_from = following
        else:
            self._engine.arm(job, following)
            job.status = JobStatus.COMPLETED if following is None else JobStatus.SCHEDULED
        job.definition = msgspec.structs.replace(job.definition, schedule=schedule)
        job.version += 1
        calendar.recomputed += 1

    def _delete(self, name: str, call: Call[Any]) -> CalendarView:
        calendar = self._calendar(name)
        _check_version(calendar, name, call)
        if users := self._users(name, *_ALIVE):
            raise Conflict(
                f"{len(users)} jobs use the calendar {name!r}: {', '.join(job.job_id for job in users[:10])}",
                code="calendar_in_use", field="name", hint="give these jobs another calendar or none, or cancel them",
            )  # fmt: skip
        del self._calendars[name]
        return self._view(calendar)

    def _users(self, name: str, *statuses: JobStatus) -> list[BoxJob]:
        return [
            job
            for job in self._engine.jobs.values()
            if job.definition.schedule.calendar == name and job.status in statuses
        ]

    def _calendar(self, name: str) -> BoxCalendar:
        if name not in self._calendars:
            raise no_calendar(name)
        return self._calendars[name]

    def _view(self, one: BoxCalendar) -> CalendarView:
        rules = one.rules
        holidays = rules.holidays or []
        return CalendarView(
            name=one.name,
            version=one.version,
            created_at=one.created_at,
            updated_at=one.updated_at,
            timezone=rules.timezone,
            holidays=[holidays] if isinstance(holidays, HolidaysIn) else holidays,
            dates=rules.dates or [],
            weekdays=rules.weekdays or [],
            hours=rules.hours,
            blackouts=rules.blackouts or [],
            description=rules.description,
            jobs=len(self._users(one.name, *_ALIVE)),
            pending=0,
            recomputed=one.recomputed,
        )


def _check_version(calendar: BoxCalendar | None, name: str, call: Call[Any]) -> None:
    wanted = dict(call.headers).get("If-Match", "").strip('"')
    if wanted and (calendar is None or calendar.version != int(wanted)):
        raise VersionMismatch(f"the calendar {name!r} does not have version {wanted}", field="If-Match")
