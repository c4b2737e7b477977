"""Previews of schedules that are not stored."""

from __future__ import annotations

import asyncio
from datetime import datetime
from time import thread_time

from mainspring.domain.intake.schedule import read_schedule
from mainspring.domain.job import JobDefinition
from mainspring.domain.schedules.preview import Asked, asked, listed, previewed, when_of
from mainspring.kernel.clock import DatabaseClock
from mainspring.operations.access.caller import Caller
from mainspring.operations.calendars.rules import CalendarBook
from mainspring.store.pool import Store
from mainspring.wire.preview import PreviewRequest, SchedulePreview

_AT_ONCE = 2
_LONGEST = 2.0  # seconds of CPU time for the list


class Previewer:
    def __init__(self, store: Store, clock: DatabaseClock) -> None:
        self._clock = clock
        self._calendars = CalendarBook(store, clock)
        self._at_once = asyncio.Semaphore(_AT_ONCE)

    async def preview(self, caller: Caller, request: PreviewRequest) -> SchedulePreview:
        """The next fires of a schedule. Raises what the creation of a job with it would raise."""
        now = self._clock.now()
        schedule = read_schedule(when_of(request), now)
        if schedule.calendar is not None:
            job = JobDefinition(task="preview", schedule=schedule, job_id=request.job_id)
            (job,) = await self._calendars.resolved(caller.tenant, [job], single=True)
            schedule = job.schedule
        plan = asked(request, caller.tenant, now, schedule)
        async with self._at_once:
            return await asyncio.to_thread(_previewed, plan)


def _previewed(plan: Asked) -> SchedulePreview:
    """In a thread: a calendar that divides each day takes a second to count a year."""
    found: list[datetime] = []
    end = thread_time() + _LONGEST
    for moment in listed(plan):
        found.append(moment)
        if thread_time() > end and len(found) < plan.most:
            return previewed(plan, found, cut=True)
    return previewed(plan, found)
