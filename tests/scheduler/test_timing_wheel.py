"""The timing wheel compared with a plain list: never early, at most one tick late, each key exactly once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from mainspring.scheduler import timing_wheel
from mainspring.scheduler.timing_wheel import TimingWheel

TICK = 0.004
TURN = 256 * TICK  # of the lowest level, if it has 256 slots: 1.024 s; the next level takes 262 s
ROUNDING = 1e-6  # the precision of a float of seconds since 1970
EPOCH = 1_800_000_000.0
KEYS = st.integers(0, 9)


def spans(bits: int, levels: int) -> st.SearchStrategy[float]:
    """Seconds from zero to two turns of the highest level, often at the edges of a turn."""
    turns = [TICK * (1 << bits * level) for level in range(levels + 1)]
    edges = [turn + offset * TICK for turn in turns for offset in (-1, 0, 1)]
    return st.one_of(st.sampled_from(edges), *(st.floats(0, 2 * turn) for turn in turns))


def wheel_against_list(
    delays: st.SearchStrategy[float], steps: st.SearchStrategy[float]
) -> type[RuleBasedStateMachine]:
    """A state machine that adds, moves, cancels and advances. The oracle is a plain dictionary."""

    class WheelAgainstList(RuleBasedStateMachine):
        @initialize(start=delays)
        def begin(self, start: float) -> None:
            self.now = EPOCH + start
            self.wheel: TimingWheel[int, tuple[int, int]] = TimingWheel(self.now)
            self.due: dict[int, tuple[int, float]] = {}  # key: the number of its last add, and its due time
            self.count = 0

        @rule(key=KEYS, delay=delays)
        def add_or_move(self, key: int, delay: float) -> None:
            self.add(key, self.now + delay)

        @rule(key=KEYS, late=st.floats(0, 5 * TURN))
        def add_what_is_past(self, key: int, late: float) -> None:
            self.add(key, self.now - late)

        @rule(key=KEYS)
        def cancel(self, key: int) -> None:
            assert self.wheel.cancel(key) == (self.due.pop(key, None) is not None)

        @rule(step=steps)
        def advance(self, step: float) -> None:
            self.now += step
            self.take()

        @rule(longest=st.floats(0.001, 5.0), behind=st.floats(0, 2.0))
        def wait_and_advance(self, longest: float, behind: float) -> None:
            """`behind`: how long ago the wheel was advanced."""
            asked = self.now + behind
            pause = self.wheel.wait(asked, longest)
            assert 0 <= pause <= longest
            first = min((moment for _, moment in self.due.values()), default=float("inf"))
            assert asked + pause <= max(asked, first + TICK + ROUNDING), "overslept"
            self.now = asked + pause
            self.take()

        @invariant()
        def agrees_on_what_waits(self) -> None:
            assert len(self.wheel) == len(self.due)
            for key in range(10):
                waiting = self.due.get(key)
                assert (key in self.wheel) == (waiting is not None)
                assert self.wheel.get(key) == (None if waiting is None else (key, waiting[0]))

        def add(self, key: int, moment: float) -> None:
            self.count += 1
            self.due[key] = (self.count, moment)
            self.wheel.add(key, (key, self.count), moment)

        def take(self) -> None:
            for key, number in self.wheel.advance(self.now):
                added, moment = self.due.pop(key)
                assert added == number, "a moved or cancelled entry was returned"
                assert moment <= self.now + ROUNDING, "early"
            for _, moment in self.due.values():
                assert moment > self.now - TICK - ROUNDING, "late"

    return WheelAgainstList


def with_slots(monkeypatch: pytest.MonkeyPatch, bits: int) -> None:
    """The same wheel with fewer slots per level, so that a test reaches higher levels quickly."""
    for name, value in {"_BITS": bits, "_SLOTS": 1 << bits, "_MASK": (1 << bits) - 1}.items():
        monkeypatch.setattr(timing_wheel, name, value)


@pytest.mark.slow
def test_the_wheel_does_what_a_list_would(monkeypatch: pytest.MonkeyPatch) -> None:
    with_slots(monkeypatch, 8)
    machine = wheel_against_list(delays=spans(8, levels=3), steps=spans(8, levels=1))
    run_state_machine_as_test(machine, settings=settings(max_examples=60, stateful_step_count=30))


@pytest.mark.slow
def test_every_level_does_what_a_list_would(monkeypatch: pytest.MonkeyPatch) -> None:
    with_slots(monkeypatch, 2)
    machine = wheel_against_list(delays=spans(2, levels=6), steps=spans(2, levels=5))
    run_state_machine_as_test(machine, settings=settings(max_examples=60, stateful_step_count=40))


@pytest.mark.slow
@given(st.lists(st.floats(0, 300 * TURN), max_size=60), st.lists(st.floats(0, 100 * TURN), max_size=3))
@settings(max_examples=40)
def test_what_is_handed_out_at_once_is_in_the_order_of_its_moments(delays: list[float], steps: list[float]) -> None:
    wheel: TimingWheel[int, float] = TimingWheel(EPOCH)
    for number, delay in enumerate(delays):
        wheel.add(number, EPOCH + delay, EPOCH + delay)
    now, handed_out = EPOCH, []
    for step in [*steps, 300 * TURN]:
        now += step
        batch = wheel.advance(now)
        ticks = [-(-moment // TICK) for moment in batch]
        assert ticks == sorted(ticks)
        handed_out += batch
    assert sorted(handed_out) == sorted(EPOCH + delay for delay in delays)


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("offset", [-1, 0, 1])
@pytest.mark.parametrize("start", [0, 1, 255, 256, 65_535, 65_536, 65_537])
def test_the_edges_of_each_level_are_met_to_the_tick(
    monkeypatch: pytest.MonkeyPatch, level: int, offset: int, start: int
) -> None:
    """A tick of one second avoids rounding errors."""
    with_slots(monkeypatch, 8)
    wheel: TimingWheel[str, str] = TimingWheel(float(start), tick=1.0)
    due = start + 256**level + offset
    wheel.add("job", "job", float(due))
    assert wheel.advance(float(due - 1)) == []
    assert wheel.advance(float(due)) == ["job"]
    assert wheel.advance(float(due + 256**level)) == []


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
