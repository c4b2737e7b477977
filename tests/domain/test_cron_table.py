"""Cron lines fire at the times that are written in the table, and are counted."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice

import pytest

from mainspring.domain.intake.cron import check_cron
from mainspring.domain.schedules.fires import count_fires, fires
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind
from tests.domain.cron_table import DEBIAN, MOVED, OURS

BEGIN = datetime(2026, 11, 16, tzinfo=UTC)


@pytest.mark.parametrize(("line", "times"), DEBIAN + OURS)
def test_a_line_fires_at_the_times_of_the_table(line: str, times: str) -> None:
    expected = [datetime.fromisoformat(text).replace(tzinfo=UTC) for text in times.split()]
    schedule = Schedule(kind=ScheduleKind.CRON, cron=check_cron(line, "UTC", "cron", BEGIN))
    assert list(islice(fires(schedule, BEGIN), len(expected))) == expected
    assert count_fires(schedule, BEGIN, expected[-1]) == len(expected)


@pytest.mark.parametrize(("line", "zone", "gap", "overlap", "start", "times"), MOVED)
def test_a_line_fires_at_the_times_of_the_table_when_clocks_are_moved(
    line: str, zone: str, gap: str | None, overlap: str | None, start: str, times: str
) -> None:
    expected, begin = [datetime.fromisoformat(text) for text in times.split()], datetime.fromisoformat(start)
    cron = check_cron(line, zone, "cron", begin, gap, overlap)
    schedule = Schedule(kind=ScheduleKind.CRON, cron=cron, timezone=zone, gap=gap, fold=overlap)
    assert list(islice(fires(schedule, begin), len(expected))) == expected
    assert count_fires(schedule, begin, expected[-1]) == len(expected)
