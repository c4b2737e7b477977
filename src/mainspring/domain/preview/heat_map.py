"""The heat map of a forecast: fires in cells, and the minutes in which they pile up. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

from mainspring.domain.errors import InvalidInput
from mainspring.domain.preview.preview import spread_view
from mainspring.domain.schedules.fires import fires
from mainspring.domain.schedules.forecast import DAYS_AHEAD, Forecast, ForecastPart, Peak
from mainspring.domain.schedules.minutes import MINUTE
from mainspring.domain.schedules.schedule import ScheduleKind
from mainspring.domain.schedules.zones import zone
from mainspring.wire.preview import HeatCell, HeatMap, PileUp, PileUpPart, RangeWord

_DAY = timedelta(days=1)
_LENGTHS: dict[str, tuple[timedelta, int]] = {
    "day": (_DAY, 5),
    "week": (7 * _DAY, 60),
}  # the length of the map, and the minutes of a cell
_MOST_PILE_UPS = 5
NOTABLE = 2.0  # a pile-up has at least so many times the fires of the average minute
LEAST_FIRES = 3
_SHARE = 4  # and at least one fourth of the fires of the worst minute
ONE_TIME = "one-time jobs"


def first_cell(given: datetime | None, span: RangeWord, timezone: str, now: datetime) -> datetime:
    """The beginning of the cell of `given`, by the clocks of the zone. Raises InvalidInput if it has passed, or is too
    far ahead."""
    length, size = _LENGTHS[span]
    earliest = _floor(now, size, timezone)
    if given is None:
        return earliest
    latest = _floor(now + DAYS_AHEAD * _DAY - length, size, timezone)
    start = _floor(given, size, timezone)
    if not earliest <= start <= latest:
        raise InvalidInput(
            "from has passed" if start < earliest else "from is too far ahead", code="invalid_parameter", field="from",
            expected=f"a time from {_text(earliest)} to {_text(latest)}",
            hint=f"the map looks {DAYS_AHEAD} days ahead; leave it out to begin now",
        )  # fmt: skip
    return start


def heat_map(forecast: Forecast, span: RangeWord, start: datetime, timezone: str, as_of: datetime) -> HeatMap:
    length, size = _LENGTHS[span]
    place = zone(timezone)
    offset, minutes = (start - forecast.start) // MINUTE, length // MINUTE
    cells = []
    for first in range(offset, offset + minutes, size):
        moment = start + (first - offset) * MINUTE
        count = sum(forecast.counts[max(0, first) : max(0, first + size)])
        cells.append(HeatCell(moment, moment.astimezone(place).isoformat(), count))
    total = sum(cell.fires for cell in cells)
    peaks = [peak for peak in forecast.peaks if offset <= peak.minute < offset + minutes]
    return HeatMap(
        range=span,
        timezone=timezone,
        from_=start,
        to=start + length,
        cell_seconds=size * 60,
        as_of=as_of,
        estimated=forecast.estimated,
        jobs=forecast.jobs,
        fires=total,
        cells=cells,
        pile_ups=_pile_ups(forecast, peaks, total / minutes, timezone),
    )


def _pile_ups(forecast: Forecast, peaks: list[Peak], average: float, timezone: str) -> list[PileUp]:
    """The worst pile-ups. A pile-up of the same jobs at the same time of day is listed once."""
    found: list[PileUp] = []
    place, seen = zone(timezone), set()
    worst = max((peak.fires for peak in peaks), default=0)
    least = max(LEAST_FIRES, NOTABLE * average, worst / _SHARE)
    for peak in sorted(peaks, key=lambda peak: (-peak.fires, peak.minute)):
        if len(found) >= _MOST_PILE_UPS or peak.fires < least:
            break
        moment = forecast.start + peak.minute * MINUTE
        local = moment.astimezone(place)
        alike = (local.time(), tuple(peak.parts))
        if alike not in seen:
            seen.add(alike)
            by = [_part(forecast.parts[number], fires, moment) for number, fires in peak.parts]
            found.append(PileUp(moment, local.isoformat(), peak.fires, by))
    return found


def _part(part: ForecastPart, count: int, moment: datetime) -> PileUpPart:
    schedule = part.schedule
    if schedule is None:
        return PileUpPart(ONE_TIME, None, part.jobs, count, part.job_ids)
    spread = None
    if part.jobs > 1 and not part.hashed:
        some = list(islice(fires(schedule, moment - MINUTE), 3))
        spread = spread_view(schedule, some, f"{part.jobs:,} jobs have this schedule")
    timezone = None if schedule.kind is ScheduleKind.EVERY else schedule.timezone
    return PileUpPart(schedule.words(), timezone, part.jobs, count, part.job_ids, spread)


def _floor(moment: datetime, minutes: int, timezone: str) -> datetime:
    local = moment.astimezone(zone(timezone))
    past = timedelta(minutes=local.minute % minutes, seconds=local.second, microseconds=local.microsecond)
    return (moment - past).astimezone(UTC)


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
