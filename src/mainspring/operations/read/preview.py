"""Previews of schedules that are not stored."""

from __future__ import annotations

from datetime import datetime
from itertools import islice

from mainspring.domain.intake.schedule import read_schedule
from mainspring.domain.job import JobDefinition
from mainspring.domain.schedules.fires import fires
from mainspring.domain.schedules.preview import Asked, asked, previewed, when_of
from mainspring.kernel.clock import DatabaseClock
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.access.caller import Caller
from mainspring.operations.calendars.rules import CalendarBook
from mainspring.store.pool import Store
from mainspring.wire.preview import PreviewRequest, SchedulePreview


class Previewer:
    def __init__(self, store: Store, clock: DatabaseClock) -> None:
        self._clock = clock
        self._calendars = CalendarBook(store, clock)

    async def preview(self, caller: Caller, request: PreviewRequest) -> SchedulePreview:
        """The next fires of a schedule. Raises what the creation of a job with it would raise."""
        now = self._clock.now()
        schedule = read_schedule(when_of(request), now)
        if schedule.calendar is not None:
            job = JobDefinition(task="preview", schedule=schedule, job_id=request.job_id)
            (job,) = await self._calendars.resolved(caller.tenant, [job], single=True)
            schedule = job.schedule
        plan = asked(request, caller.tenant, now, schedule)
        return previewed(plan, await _listed(plan))


async def _listed(plan: Asked) -> list[datetime]:
    found: list[datetime] = []
    slices = TimeSlices()
    for moment in islice(fires(plan.schedule, plan.after), plan.most):
        found.append(moment)
        if slices.over:
            await slices.pause()
    return found
