"""The database's time is stored as an offset, from the most precise observation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.kernel.clock import DatabaseClock, ManualClock, SystemClock

START = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
AHEAD = timedelta(seconds=30)  # how far the database's clock is ahead of ours


class Rig:
    """A database whose clock is AHEAD of the local one, with round trips of a given length."""

    def __init__(self) -> None:
        self.ahead = AHEAD
        self.ours = ManualClock(START)
        self.clock = DatabaseClock(self.ours)

    def truth(self) -> datetime:
        return self.ours.wall() + self.ahead

    def observe(self, round_trip: float) -> None:
        """The whole trip is the way to the database, so the middle is wrong by half the trip."""
        sent = self.ours.monotonic()
        self.ours.advance(round_trip)
        self.clock.observe(self.truth(), sent, self.ours.monotonic())

    def error(self) -> float:
        return abs((self.clock.now() - self.truth()).total_seconds())


def test_nothing_is_known_before_the_first_observation() -> None:
    rig = Rig()
    assert not rig.clock.known
    with pytest.raises(RuntimeError, match="not been observed"):
        rig.clock.now()


def test_time_goes_on_by_our_monotonic_clock() -> None:
    rig = Rig()
    rig.observe(0.0)
    assert rig.clock.known
    rig.ours.advance(3.5)
    assert rig.error() == pytest.approx(0, abs=1e-6)
    assert rig.clock.timestamp() == pytest.approx(rig.truth().timestamp(), abs=1e-6)


def test_a_trip_is_off_by_half_its_length_at_most() -> None:
    rig = Rig()
    rig.observe(0.4)
    assert rig.error() == pytest.approx(0.2, abs=1e-6)


def test_a_shorter_trip_is_better_and_a_long_one_is_not_believed() -> None:
    rig = Rig()
    rig.observe(0.4)
    rig.observe(0.02)
    assert rig.error() == pytest.approx(0.01, abs=1e-6)
    rig.observe(0.4)
    assert rig.error() == pytest.approx(0.01, abs=1e-6)


def test_a_chain_of_trips_that_grow_little_by_little_does_not_lead_away() -> None:
    rig = Rig()
    trip = 0.01
    for _ in range(12):
        rig.observe(trip)
        trip *= 1.4
    assert rig.error() <= 0.01 * 1.5 / 2 + 1e-6


def test_after_ten_seconds_a_longer_trip_replaces_an_estimate_that_it_contradicts() -> None:
    rig = Rig()
    rig.observe(0.01)
    rig.ours.advance(10.1)
    rig.ahead += timedelta(seconds=5)
    rig.observe(0.2)
    assert rig.error() == pytest.approx(0.1, abs=1e-6)


def test_a_longer_trip_that_agrees_with_the_estimate_does_not_replace_it() -> None:
    rig = Rig()
    rig.observe(0.01)
    for _ in range(3):
        rig.ours.advance(10.1)
        rig.observe(0.4)
        assert rig.error() == pytest.approx(0.005, abs=1e-6)
    rig.ours.advance(10.1)
    rig.observe(0.004)
    assert rig.error() == pytest.approx(0.002, abs=1e-6)


@settings(deadline=None)
@given(st.lists(st.floats(0.001, 0.5), min_size=1, max_size=15))
def test_within_ten_seconds_the_error_is_near_that_of_the_shortest_trip(trips: list[float]) -> None:
    rig = Rig()
    for trip in trips:
        rig.observe(trip)
    assert rig.error() <= min(trips) * 1.5 / 2 + 1e-5


def test_the_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(START)
    before = clock.monotonic()
    assert clock.wall() == START
    clock.advance(1.5)
    assert (clock.wall() - START, clock.monotonic() - before) == (timedelta(seconds=1.5), 1.5)


def test_the_system_clock_rises_and_is_in_utc() -> None:
    clock = SystemClock()
    first = clock.monotonic()
    assert clock.monotonic() >= first
    assert clock.wall().tzinfo is UTC
