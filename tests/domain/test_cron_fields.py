"""Fields mean what they mean to cronsim, which stored lines were written for."""

from __future__ import annotations

import re
from datetime import datetime

from cronsim import CronSim, CronSimError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mainspring.domain.schedules.cron_fields import CronError
from mainspring.domain.schedules.wall_clock import WallClock
from tests.domain.cron_oracle import days_of_month, hours, minutes, months, weekdays

_RANGE_OF_ONE = re.compile(r"(?<!\w)(\w+)-\1/")  # cronsim reads 5-5/2 as 5/2
texts = st.text(alphabet="0123456789*,-/#LWMONFRIJANab ", max_size=12)
odd = st.sampled_from(
    ["L/2", "LW/3", "5L", "MON#2", "7#5", "SUN-SAT", "FRI-MON", "5-7", "1,,2", "*/100", "L,LW,3", "*,5"]
)
fields = st.one_of(minutes, hours, days_of_month, months, weekdays, odd, texts)
lines = st.lists(fields, min_size=5, max_size=6).map(" ".join)


@settings(max_examples=200)
@given(lines)
@example("0 0 L/2 * 0L,7#2")
@example("0 0 * * SUN-SAT/2")
def test_lines_are_read_as_cronsim_reads_them(line: str) -> None:
    if _RANGE_OF_ONE.search(line.upper()):
        return
    ours, theirs = _read(line), _read_by_cronsim(line)
    # A day that no month has is a bad day to cronsim. To us it is a line that never fires.
    assert ours == theirs or (theirs is None and ours is not None and not WallClock(line).occurs)


def _read(line: str) -> object:
    try:
        clock = WallClock(line)
    except CronError:
        return None
    days, week = clock.days.of_month, clock.days.of_week
    marks = {*([CronSim.LAST] if days.last_day else []), *([CronSim.LAST_WEEKDAY] if days.last_weekday else [])}
    times = (clock.seconds.numbers, clock.minutes.numbers, clock.hours.numbers, clock.months.numbers)
    nth = {(weekday, which or CronSim.LAST) for weekday, which in week.nth}
    return times, {*days.numbers, *marks}, {*week.numbers, *nth}, clock.days.both


def _read_by_cronsim(line: str) -> object:
    try:
        sim = CronSim(line, datetime(2026, 1, 1))
    except (CronSimError, AssertionError):
        return None
    times = (sorted(sim.seconds), sorted(sim.minutes), sorted(sim.hours), sorted(sim.months))
    week = {item % 7 if isinstance(item, int) else (item[0] % 7, item[1]) for item in sim.weekdays}
    return times, sim.days, week, sim.day_and
