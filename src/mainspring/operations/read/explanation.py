"""Explains schedules while they are written."""

from __future__ import annotations

from datetime import timedelta

from mainspring.domain.errors import InvalidInput, NotSupportedYet, Unavailable
from mainspring.domain.preview.explanation import explained, may_meet_others, pile_up, problem, without
from mainspring.domain.preview.preview import Asked
from mainspring.domain.schedules.forecast import DAYS_AHEAD, Forecast
from mainspring.operations.access.caller import Caller
from mainspring.operations.read.heat_map import HeatMapReader
from mainspring.operations.read.preview import Previewer
from mainspring.wire.preview import PreviewRequest, ScheduleExplanation
from mainspring.wire.problems import FieldProblem

_MOST_PROBLEMS = 10
_AHEAD = timedelta(days=DAYS_AHEAD)


class Explainer:
    def __init__(self, previewer: Previewer, heat_maps: HeatMapReader) -> None:
        self._previewer = previewer
        self._heat_maps = heat_maps

    async def explain(self, caller: Caller, request: PreviewRequest) -> ScheduleExplanation:
        """What a schedule does, or what is wrong with it, field by field. It refuses nothing that can be decoded."""
        problems: list[FieldProblem] = []
        left: PreviewRequest | None = request
        plan: Asked | None = None
        while left is not None and plan is None and len(problems) < _MOST_PROBLEMS:
            try:
                plan = await self._previewer.plan(caller, left)
            except (InvalidInput, NotSupportedYet) as error:
                problems.append(problem(error))
                left = without(left, error.field)
        if problems or plan is None:
            return ScheduleExplanation(valid=False, problems=problems)
        fires, cut = await self._previewer.fires(caller, plan)
        near = [moment for moment in fires if moment - plan.now < _AHEAD]
        forecast = await self._forecast(caller) if near and may_meet_others(plan.schedule) else None
        piled = None if forecast is None else pile_up(forecast, near)
        return await self._previewer.in_thread(caller, lambda: explained(plan, fires, piled, cut=cut))

    async def _forecast(self, caller: Caller) -> Forecast | None:
        """The forecast, or None if it is not ready: an explanation does not need it."""
        try:
            return await self._heat_maps.recent(caller)
        except Unavailable:
            return None
