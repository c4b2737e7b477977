"""Clock changes: in every zone, a daily job runs exactly once on the day of a change."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo, available_timezones

import pytest

from mainspring.domain.schedules.fires import fires
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind

DAY = timedelta(days=1)
NEW_YEAR = datetime(2026, 1, 1, 12, tzinfo=UTC)


def changes(zone: ZoneInfo) -> Iterator[datetime]:
    """The noons that are followed by a clock change before the next noon."""
    noons = [NEW_YEAR + number * DAY for number in range(366)]
    offsets = [noon.astimezone(zone).utcoffset() for noon in noons]
    return (noon for noon, here, then in zip(noons, offsets, offsets[1:], strict=False) if here != then)


@pytest.mark.parametrize("expression", ["0 0 * * *", "30 1 * * *", "30 2 * * *"])
def test_a_daily_job_runs_once_on_the_day_clocks_are_moved_in_every_zone(expression: str) -> None:
    moved = 0
    for name in sorted(available_timezones()):
        zone = ZoneInfo(name)
        schedule = Schedule(kind=ScheduleKind.CRON, cron=expression, timezone=name)
        for noon in changes(zone):
            moved += 1
            dates = [moment.astimezone(zone).date() for moment in islice(fires(schedule, noon - 2 * DAY), 5)]
            assert dates == [dates[0] + number * DAY for number in range(5)], (name, noon)
    assert moved > 200
