"""Previews of schedules that are not stored."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from time import thread_time
from typing import TypeVar

from mainspring.domain.intake.schedule import read_schedule
from mainspring.domain.job import JobDefinition
from mainspring.domain.preview.preview import Asked, asked, listed, previewed, when_of
from mainspring.kernel.clock import DatabaseClock
from mainspring.operations.access.caller import Caller
from mainspring.operations.calendars.rules import CalendarBook
from mainspring.operations.computations import Computations
from mainspring.store.pool import Store
from mainspring.wire.preview import PreviewRequest, SchedulePreview

_LONGEST = 2.0  # seconds of CPU time for the list

T = TypeVar("T")


class Previewer:
    def __init__(self, store: Store, clock: DatabaseClock, computations: Computations) -> None:
        self._clock = clock
        self._calendars = CalendarBook(store, clock)
        self._computations = computations

    async def preview(self, caller: Caller, request: PreviewRequest) -> SchedulePreview:
        """The next fires of a schedule. Raises what the creation of a job with it would raise."""
        plan = await self.plan(caller, request)
        return await self.in_thread(caller, lambda: _previewed(plan))

    async def plan(self, caller: Caller, request: PreviewRequest) -> Asked:
        """The plan of a preview. Raises what the creation of a job with this schedule would raise."""
        now = self._clock.now()
        schedule = read_schedule(when_of(request), now)
        if schedule.calendar is not None:
            job = JobDefinition(task="preview", schedule=schedule, job_id=request.job_id)
            (job,) = await self._calendars.resolved(caller.tenant, [job], single=True)
            schedule = job.schedule
        return asked(request, caller.tenant, now, schedule)

    async def fires(self, caller: Caller, plan: Asked) -> tuple[list[datetime], bool]:
        """The fires, and whether there are more that would take too long to list."""
        return await self.in_thread(caller, lambda: _fires(plan))

    async def in_thread(self, caller: Caller, work: Callable[[], T]) -> T:
        """Compute in a thread: for a calendar that divides each day, counting a year takes a second."""
        return await self._computations.run(caller.tenant, work)


def _previewed(plan: Asked) -> SchedulePreview:
    found, cut = _fires(plan)
    return previewed(plan, found, cut=cut)


def _fires(plan: Asked) -> tuple[list[datetime], bool]:
    found: list[datetime] = []
    end = thread_time() + _LONGEST
    for moment in listed(plan):
        found.append(moment)
        if thread_time() > end and len(found) < plan.most:
            return found, True
    return found, False
