"""The routes of a box's local server for what is ahead: previews, the next fires and the heat map."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Any, cast

from mainspring.domain.errors import NotSupportedYet
from mainspring.domain.intake.schedule import read_schedule
from mainspring.domain.intake.times import parse_time
from mainspring.domain.job import JobDefinition
from mainspring.domain.preview.heat_map import first_cell, heat_map
from mainspring.domain.preview.preview import asked, listed, previewed, when_of
from mainspring.domain.schedules.forecast import DAYS_AHEAD, Census, Forecast, Forecaster
from mainspring.domain.schedules.minutes import floor_minute
from mainspring.domain.schedules.upcoming import end_of_list, fires_within
from mainspring.domain.schedules.zones import check_timezone
from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.sdk.client.core import Call
from mainspring.sdk.testing.call_parsing import PAGE, Route, read_body
from mainspring.sdk.testing.engine import Engine
from mainspring.sdk.testing.local_calendars import LocalCalendars
from mainspring.sdk.testing.records import BoxJob
from mainspring.wire.preview import (
    HeatMap,
    PreviewRequest,
    RangeWord,
    SchedulePreview,
    UpcomingFire,
    UpcomingFires,
)

_MINUTES = (DAYS_AHEAD * 24 + 1) * 60
_EFFORT = 10**9


class LocalInsights:
    def __init__(self, engine: Engine, calendars: LocalCalendars) -> None:
        self._engine = engine
        self._calendars = calendars

    def routes(self) -> dict[str, Route]:
        return {"POST schedules:preview": self._preview, "GET insights/{}": self._insight}

    def _preview(self, _: str, call: Call[Any]) -> SchedulePreview:
        request = read_body(call, PreviewRequest)
        schedule = read_schedule(when_of(request), self._engine.now)
        job = self._calendars.resolved(JobDefinition(task="preview", schedule=schedule, job_id=request.job_id))
        plan = asked(request, DEFAULT_TENANT, self._engine.now, job.schedule)
        return previewed(plan, list(listed(plan)))

    def _insight(self, name: str, call: Call[Any]) -> HeatMap | UpcomingFires:
        if name == "upcoming":
            return self._upcoming(call)
        if name != "heatmap":
            raise NotSupportedYet(f"a box does not support {call.method} {call.path}", hint="use a server in this test")
        given, now = dict(call.params), self._engine.now
        span, timezone = cast(RangeWord, given.get("range", "day")), given.get("timezone", "UTC")
        check_timezone(timezone, "timezone")
        moment = parse_time(given["from"], "from") if "from" in given else None
        return heat_map(self._forecast(), span, first_cell(moment, span, timezone, now), timezone, now)

    def _upcoming(self, call: Call[Any]) -> UpcomingFires:
        given = dict(call.params)
        start = parse_time(given["from"], "from") if "from" in given else self._engine.now
        end = end_of_list(start, parse_time(given["to"], "to") if "to" in given else None)
        begin, size = int(given.get("cursor", 0)), int(given.get("limit", PAGE))
        ahead = heapq.merge(*(self._fires(job, start, end) for job in self._engine.jobs.values()), key=_place)
        found = list(islice(ahead, begin, begin + size + 1))
        more, shown = len(found) > size, found[:size]
        until = shown[-1].at if more else end
        return UpcomingFires(start, until, shown, more, str(begin + size) if more else None)

    def _fires(self, job: BoxJob, start: datetime, end: datetime) -> Iterator[UpcomingFire]:
        if job.next_fire is None:
            return
        definition = job.definition
        name, words = definition.name or definition.task, definition.schedule.words()
        for moment in fires_within(definition.schedule, job.next_fire, job.runs_left, start, end):
            yield UpcomingFire(moment, job.job_id, name, words, definition.queue)

    def _forecast(self) -> Forecast:
        census = Census(self._engine.now)
        for job in self._engine.jobs.values():
            schedule = job.definition.schedule
            if job.next_fire is None:
                continue
            if schedule.recurring:
                census.add(schedule, 1, [job.job_id])
            else:
                census.add_once(floor_minute(job.next_fire), 1, [job.job_id])
        forecaster = Forecaster(census, _MINUTES, _EFFORT)
        for _ in forecaster.work():
            pass
        return forecaster.forecast()


def _place(fire: UpcomingFire) -> tuple[datetime, str]:
    return fire.at, fire.job_id
