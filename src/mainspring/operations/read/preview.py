"""Previews of schedules that are not stored."""

from __future__ import annotations

from datetime import datetime

from mainspring.domain.schedules.fires import fires
from mainspring.domain.schedules.preview import Asked, asked, previewed
from mainspring.kernel.clock import DatabaseClock
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.access.caller import Caller
from mainspring.wire.preview import PreviewRequest, SchedulePreview


class Previewer:
    def __init__(self, clock: DatabaseClock) -> None:
        self._clock = clock

    async def preview(self, caller: Caller, request: PreviewRequest) -> SchedulePreview:
        """The next fires of a schedule. Raises what the creation of a job with it would raise."""
        plan = asked(request, caller.tenant, self._clock.now())
        return previewed(plan, await _listed(plan))


async def _listed(plan: Asked) -> list[datetime]:
    found: list[datetime] = []
    slices = TimeSlices()
    for moment in fires(plan.schedule, plan.after):
        found.append(moment)
        if len(found) >= plan.count:
            break
        if slices.over:
            await slices.pause()
    return found
