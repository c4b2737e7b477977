"""The bound of a rate: any window of t seconds has at most rate * t + 2 * burst + rate * 250 ms starts."""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.pacing import AHEAD, Pace, most_unstarted

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)
SLACK = 1e-4


def check_bound(starts: list[float], every: float, burst: int) -> None:
    starts.sort()
    for first, begin in enumerate(starts):
        for last in range(first, len(starts)):
            window = starts[last] - begin
            assert last - first + 1 <= window / every + 2 * burst + AHEAD / every + SLACK, (begin, window)


class Line:
    """A line with endless runs, and workers that start them as told."""

    def __init__(self, every: float, burst: int) -> None:
        self.every, self.burst = every, burst
        self.tat: datetime | None = None
        self.waiting: list[float] = []  # moments of those who have a token
        self.starts: list[float] = []
        self.now = 0.0

    def look(self, most: int) -> Pace:
        pace = Pace(BEGIN + timedelta(seconds=self.now), self.every, self.burst, self.tat, len(self.waiting))
        spent = min(pace.tokens, most)
        for number in range(1, spent + 1):
            self.waiting.append((pace.moment(number) - BEGIN).total_seconds())
        self.tat = pace.tat_after(spent)
        assert len(self.waiting) <= most_unstarted(self.every, self.burst)
        assert all(moment <= self.now + AHEAD + SLACK for moment in self.waiting)
        return pace

    def start(self, most: int) -> None:
        self.waiting.sort()
        count = min(most, bisect_right(self.waiting, self.now))
        self.starts += [self.now] * count
        del self.waiting[:count]


steps = st.lists(
    st.tuples(
        st.floats(0, 1.5),  # time that passes
        st.integers(0, 100),  # runs that stand in the line
        st.integers(0, 100),  # runs that workers start
    ),
    max_size=40,
)


@given(st.sampled_from([0.005, 0.01, 0.07, 0.25, 0.6, 3.0]), st.integers(1, 8), steps)
def test_the_bound_holds_whatever_workers_do(every: float, burst: int, moves: list[tuple[float, int, int]]) -> None:
    line = Line(every, burst)
    for passed, standing, started in moves:
        line.now += passed
        line.look(standing)
        line.start(started)
    check_bound(line.starts, every, burst)


@pytest.mark.parametrize(("every", "burst"), [(0.005, 20), (0.01, 1), (0.6, 1), (0.3, 4)])
def test_a_line_that_is_looked_at_when_it_says_has_its_full_rate(every: float, burst: int) -> None:
    line = Line(every, burst)
    pace = line.look(10**6)
    while line.now < 30:
        line.start(10**6)
        again = pace.look_again(pace.tokens)
        line.now = (again - BEGIN).total_seconds()
        line.start(10**6)
        pace = line.look(10**6)
    assert len(line.starts) >= line.now / every - 1 - AHEAD / every
    check_bound(line.starts[:400], every, burst)


def test_a_full_bucket_gives_its_burst_at_once_and_then_one_by_one() -> None:
    pace = Pace(BEGIN, 0.1, 3, None, 0)
    assert pace.tokens == 5
    offsets = [(pace.moment(number) - BEGIN).total_seconds() for number in range(1, 6)]
    assert offsets == pytest.approx([0, 0, 0, 0.1, 0.2])


def test_a_rate_that_became_faster_does_not_wait_for_the_old_one() -> None:
    line = Line(0.1, 1)
    line.tat = BEGIN + timedelta(days=3)
    for _ in range(10):
        line.now = (line.look(100).look_again(0) - BEGIN).total_seconds()
        line.start(100)
    assert line.starts and line.now < 3
