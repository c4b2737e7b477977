"""The wheel against a plain list: never early, at most a tick late, each exactly once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mainspring.scheduler.timing_wheel import TimingWheel

TICK = 0.004
TURN = 256 * TICK  # of the lowest level: 1.024 s; the next two turn in 262 s and in 18.6 h
ROUNDING = 1e-6  # what a float of seconds since 1970 cannot tell apart
EPOCH = 1_800_000_000.0

KEYS = st.integers(0, 30)
# Steps around the turns of each level, and within them. The third level's turn is 16,777,216 ticks: an advance over
# it walks them all, which takes seconds, so the wheels below have a coarse tick and the same turns in fewer of them.
DELAYS = st.one_of(
    st.floats(-5 * TURN, 2 * TICK),
    st.floats(0, 3 * TURN),
    st.floats(250 * TURN, 260 * TURN),
    st.floats(0, 600 * TURN),
    st.floats(0, 400 * 256 * TURN),
    st.sampled_from([0.0, TICK, TURN - TICK, TURN, TURN + TICK, 256 * TURN - TICK, 256 * TURN, 256 * TURN + TICK]),
)
STEPS = st.one_of(
    st.floats(0, 3 * TICK),
    st.floats(0, 3 * TURN),
    st.floats(0, 600 * TURN),
    st.sampled_from([TICK, TURN - TICK, TURN, TURN + TICK, 256 * TURN, 257 * TURN]),
)


class WheelAgainstList(RuleBasedStateMachine):
    """The oracle is a dictionary of due times, looked through from end to end."""

    @initialize(start=st.floats(0, 300 * TURN))
    def begin(self, start: float) -> None:
        self.now = EPOCH + start
        self.wheel: TimingWheel[int, tuple[int, int]] = TimingWheel(self.now)
        self.due: dict[int, tuple[int, float]] = {}  # key -> (which adding of it, when)
        self.count = 0

    @rule(key=KEYS, delay=DELAYS)
    def add_or_move(self, key: int, delay: float) -> None:
        self.count += 1
        self.due[key] = (self.count, self.now + delay)
        self.wheel.add(key, (key, self.count), self.now + delay)

    @rule(key=KEYS)
    def cancel(self, key: int) -> None:
        assert self.wheel.cancel(key) == (self.due.pop(key, None) is not None)

    @rule(step=STEPS)
    def advance(self, step: float) -> None:
        self.now += step
        self.take()

    @rule(longest=st.floats(0.001, 5.0), late=st.floats(0, 2.0))
    def wait_and_advance(self, longest: float, late: float) -> None:
        """`late`: how long ago the wheel was turned when it is asked."""
        asked = self.now + late
        pause = self.wheel.wait(asked, longest)
        assert 0 <= pause <= longest
        first = min((moment for _, moment in self.due.values()), default=float("inf"))
        assert asked + pause <= max(asked, first + TICK + ROUNDING), "overslept"
        self.now = asked + pause
        self.take()

    def take(self) -> None:
        handed_out = self.wheel.advance(self.now)
        for key, number in handed_out:
            added, moment = self.due.pop(key)
            assert added == number, "an adding that was moved or cancelled came back"
            assert moment <= self.now + ROUNDING, "early"
        for _, moment in self.due.values():
            assert moment > self.now - TICK - ROUNDING, "late"

    @invariant()
    def agrees_on_what_waits(self) -> None:
        if not hasattr(self, "wheel"):
            return
        assert len(self.wheel) == len(self.due)
        for key, (number, _) in self.due.items():
            assert key in self.wheel
            assert self.wheel.get(key) == (key, number)


WheelAgainstList.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestWheelAgainstList = WheelAgainstList.TestCase


@given(st.lists(st.floats(0, 700 * TURN), max_size=60), st.lists(st.floats(0, 100 * TURN), max_size=20))
@settings(max_examples=50)
def test_what_is_handed_out_at_once_is_in_the_order_of_its_moments(delays: list[float], steps: list[float]) -> None:
    wheel: TimingWheel[int, float] = TimingWheel(EPOCH)
    for number, delay in enumerate(delays):
        wheel.add(number, EPOCH + delay, EPOCH + delay)
    now, handed_out = EPOCH, []
    for step in [*steps, 800 * TURN]:
        now += step
        batch = wheel.advance(now)
        ticks = [-(-moment // TICK) for moment in batch]
        assert ticks == sorted(ticks)
        handed_out += batch
    assert sorted(handed_out) == sorted(EPOCH + delay for delay in delays)


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("offset", [-1, 0, 1])
@pytest.mark.parametrize("start", [0, 1, 255, 256, 65_535, 65_536, 65_537])
def test_the_edges_of_each_level_are_met_to_the_tick(level: int, offset: int, start: int) -> None:
    """With a tick of one second there is no rounding to forgive."""
    wheel: TimingWheel[str, str] = TimingWheel(float(start), tick=1.0)
    due = start + 256**level + offset
    wheel.add("job", "job", float(due))
    assert wheel.advance(float(due - 1)) == []
    assert wheel.advance(float(due)) == ["job"]
    assert wheel.advance(float(due + 256**level)) == []


def test_a_moment_beyond_every_level_waits_its_time() -> None:
    """Four levels of 256: what lies further ahead goes round again. Walked with jumps, as nothing else waits."""
    wheel: TimingWheel[str, str] = TimingWheel(0.0, tick=1.0)
    far = 256.0**4 + 1000
    wheel.add("far", "far", far)
    wheel.add("near", "near", 10.0)
    assert wheel.advance(100_000.0) == ["near"]
    assert wheel.cancel("far")
    assert wheel.advance(far + 1) == []


def test_what_is_past_is_handed_out_at_the_next_turn() -> None:
    wheel: TimingWheel[str, str] = TimingWheel(EPOCH)
    wheel.add("late", "late", EPOCH - 100)
    assert wheel.wait(EPOCH, 0.5) == 0.0
    assert wheel.advance(EPOCH) == ["late"]
    assert wheel.advance(EPOCH + 1) == []


def test_an_empty_wheel_waits_no_longer_than_it_may() -> None:
    wheel: TimingWheel[str, str] = TimingWheel(EPOCH)
    assert 0 < wheel.wait(EPOCH, 0.5) <= 0.5


def test_a_clock_that_is_set_back_hands_out_nothing_early() -> None:
    wheel: TimingWheel[str, str] = TimingWheel(EPOCH)
    wheel.add("job", "job", EPOCH + 10)
    assert wheel.advance(EPOCH + 5) == []
    assert wheel.advance(EPOCH - 5) == []
    wheel.add("other", "other", EPOCH + 1)
    assert wheel.advance(EPOCH + 1) == ["other"]
    assert wheel.advance(EPOCH + 11) == ["job"]
