"""The routes of a box's local server for limits."""

from __future__ import annotations

from typing import Any

from mainspring.domain.errors import NotFound
from mainspring.domain.intake.limits import check_setting
from mainspring.domain.rates import format_rate
from mainspring.domain.showing import breaker_view
from mainspring.sdk.client.core import Call
from mainspring.sdk.testing.call_parsing import Route, read_body, read_page
from mainspring.sdk.testing.engine import Engine
from mainspring.sdk.testing.lines import BoxLimit
from mainspring.wire.limits import (
    BreakerList,
    BreakerView,
    LimitDetails,
    LimitLineView,
    LimitList,
    LimitRequest,
    LimitView,
)


class LocalLimits:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lines = engine.lines

    def routes(self) -> dict[str, Route]:
        return {
            "GET limits": self._list,
            "GET limits/{}": lambda limit_id, _: self._details(self._limit(limit_id)),
            "PUT limits/{}": self._set,
            "GET breakers": lambda *_: BreakerList([self._breaker(one) for one in self._breakers()]),
            "POST breakers/{}:reset": self._reset,
        }

    def _list(self, _: str, call: Call[Any]) -> LimitList:
        text = dict(call.params).get("q", "").lower()
        found = sorted((one for name, one in self._lines.limits.items() if text in name.lower()), key=_name)
        page, following = read_page(found, call)
        return LimitList([self._view(one) for one in page], following)

    def _set(self, limit_id: str, call: Call[Any]) -> LimitDetails:
        limit, wanted = self._limit(limit_id), read_body(call, LimitRequest)
        check_setting(limit.name, wanted.limit, wanted.order, strict=limit.strict)
        limit.strict = limit.strict and wanted.order is None
        self._lines.set(limit, wanted.limit, self._engine.now)
        return self._details(limit)

    def _breakers(self) -> list[BoxLimit]:
        return [limit for limit in self._lines.limits.values() if limit.failures is not None]

    def _reset(self, breaker_id: str, _: Call[Any]) -> BreakerView:
        for limit in self._breakers():
            if str(limit.limit_id) == breaker_id:
                self._lines.reset(limit.name)
                return self._breaker(limit)
        raise NotFound(f"there is no circuit breaker {breaker_id!r}", hint="see GET /v1/breakers")

    def _breaker(self, limit: BoxLimit) -> BreakerView:
        line = self._lines.lines[limit.name, ""]
        return breaker_view(
            limit.limit_id, limit.name, line.breaker, limit.failures or 0, limit.open_for, len(line.held)
        )

    def _limit(self, limit_id: str) -> BoxLimit:
        for limit in self._lines.limits.values():
            if str(limit.limit_id) == limit_id:
                return limit
        raise NotFound(f"there is no limit {limit_id!r}", hint="a limit_id is a number; see GET /v1/limits")

    def _details(self, limit: BoxLimit) -> LimitDetails:
        lines = [(line_id[1], self._lines.lines[line_id]) for line_id in self._lines.of(limit.name)]
        views = [
            LimitLineView(key, len(line.owners), len(line.held), [run.run_id for run in line.owners[:20]])
            for key, line in lines
        ]
        views.sort(key=lambda line: (-line.held, -line.in_use, line.key))
        return LimitDetails(self._view(limit), views[:100])

    def _view(self, limit: BoxLimit) -> LimitView:
        lines = [self._lines.lines[line_id] for line_id in self._lines.of(limit.name)]
        return LimitView(
            limit_id=limit.limit_id,
            name=limit.name,
            limit=limit.slots,
            declared=limit.declared,
            pinned=limit.pinned,
            order="strict" if limit.strict else "priority",
            keys=len(lines),
            in_use=sum(len(line.owners) for line in lines),
            held=sum(len(line.held) for line in lines),
            updated_at=limit.updated_at,
            rate=None if limit.every is None else format_rate(limit.every),
            burst=None if limit.every is None else limit.burst,
        )


def _name(limit: BoxLimit) -> str:
    return limit.name
