"""Previews of calendars: the days of a year, and which fires of which jobs other rules would move."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from time import thread_time

import msgspec

from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.calendar import read_calendar
from mainspring.domain.intake.calendar_names import check_calendar_name, no_calendar
from mainspring.domain.preview.calendar_preview import changed_fires, closed_days
from mainspring.domain.schedules.calendar_rules import know_rules, rules_of, rules_to_text
from mainspring.domain.schedules.words import explain
from mainspring.domain.transitions import StoredJobStatus
from mainspring.kernel.clock import DatabaseClock
from mainspring.operations.access.caller import Caller
from mainspring.operations.calendars.rules import load_rules
from mainspring.operations.computations import Computations
from mainspring.operations.paging.search import searching
from mainspring.store import calendars
from mainspring.store.calendars import CalendarRow, JobToRecompute
from mainspring.store.jobs import schedule_from_text
from mainspring.store.pool import Store
from mainspring.wire.calendars import CalendarPreview, CalendarPreviewRequest, MovedFires

_MOST_JOBS = 1000
_SHOWN_JOBS = 100
_SHOWN_FIRES = 20
_AHEAD = timedelta(days=366)
_LONGEST = 1.5  # seconds of CPU time for the comparison


class CalendarPreviewer:
    def __init__(self, store: Store, clock: DatabaseClock, computations: Computations) -> None:
        self._store = store
        self._clock = clock
        self._computations = computations

    async def preview(self, caller: Caller, name: str, request: CalendarPreviewRequest) -> CalendarPreview:
        """What these rules would do, or what the stored ones do. Nothing is stored. Raises what PUT would raise."""
        check_calendar_name(name)
        now, tenant = self._clock.now(), caller.tenant
        rules = request.rules
        if rules is not None:
            with _field_in_rules():
                rules = await self._computations.run(tenant, read_calendar, rules, now)
        async with searching(self._store, tenant, "calendars") as connection:
            row = await calendars.get(connection, tenant, name)
            if row is None and rules is None:
                raise no_calendar(name)
            users = [] if row is None else await calendars.jobs_in(connection, row, _MOST_JOBS)
            await load_rules(connection, tenant, [schedule_from_text(one.schedule_text) for one in users])
            use = None if row is None else await calendars.use(connection, row)
        text = rules_to_text(rules) if rules is not None else _stored(row).rules_text
        digest = know_rules(text)
        done = await self._computations.run(tenant, _compared, users, digest, now)
        year = request.year or now.year
        closed = await self._computations.run(tenant, closed_days, rules_of(digest), year)
        days = 366 if year % 4 == 0 and (year % 100 or year % 400 == 0) else 365
        changed = [one for one in done if one.go or one.come]
        return CalendarPreview(
            name=name, version=None if row is None else row.version, year=year, timezone=rules_of(digest).timezone,
            open_days=days - sum(not one.partly for one in closed), closed=closed, jobs=0 if use is None else use.jobs,
            compared=len(done), changed=len(changed),
            moved=sorted(done, key=lambda one: (one.go + one.come == 0, one.job_id))[:_SHOWN_JOBS],
        )  # fmt: skip


@contextmanager
def _field_in_rules() -> Iterator[None]:
    """An error of a rule names its place in the body."""
    try:
        yield
    except InvalidInput as error:
        if error.field is not None:
            error.field = f"rules.{error.field}"
        raise


def _stored(row: CalendarRow | None) -> CalendarRow:
    assert row is not None
    return row


def _compared(users: Sequence[JobToRecompute], digest: str, now: datetime) -> list[MovedFires]:
    """As many jobs as the time allows."""
    end = thread_time() + _LONGEST
    found = []
    for one in _moved(users, digest, now):
        found.append(one)
        if thread_time() > end:
            break
    return found


def _moved(users: Sequence[JobToRecompute], digest: str, now: datetime) -> Iterator[MovedFires]:
    known: dict[str, tuple[str, list[datetime], list[datetime], datetime]] = {}
    for job in users:
        schedule = schedule_from_text(job.schedule_text)
        if job.schedule_text not in known:  # many jobs have equal schedules
            after = msgspec.structs.replace(schedule, calendar_rules=digest)
            until = now + _AHEAD
            same = schedule.calendar_rules == digest
            changes = ([], [], until) if same else changed_fires(schedule, after, now, until)
            known[job.schedule_text] = (explain(schedule), *changes)
        in_words, going, coming, until = known[job.schedule_text]
        yield MovedFires(
            job_id=job.job_id, schedule=in_words, paused=job.status == StoredJobStatus.PAUSED,
            next_fire_at=job.next_fire_at or job.paused_from, until=until, go=len(going), come=len(coming),
            going=going[:_SHOWN_FIRES], coming=coming[:_SHOWN_FIRES],
        )  # fmt: skip
