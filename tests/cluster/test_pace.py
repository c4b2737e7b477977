"""Bounds of time are stretched by as much as the machine was slow, and by no more."""

from __future__ import annotations

import pytest

from tests.cluster.history import BUSY
from tests.cluster.pace import Slow, after, longest_step, mean_factor, slow_windows
from tests.cluster.rules import judge
from tests.cluster.story import plain_story


def test_a_second_of_a_quiet_machine_takes_longer_on_a_slow_one() -> None:
    slow = [Slow(10.0, 20.0, 5.0), Slow(30.0, 31.0, 2.0)]
    assert after(slow, 0.0, 5.0) == 5.0
    assert after(slow, 9.0, 2.0) == 15.0
    assert after(slow, 9.0, 4.0) == 21.0
    assert after(slow, 15.0, 11.0) == 30.0
    assert after(slow, 40.0, 1.0) == 41.0
    assert mean_factor(slow, 0.0, 41.0) == pytest.approx(2.0)
    assert longest_step(slow, 0.0, 5.0) == 0.0
    assert longest_step(slow, 0.0, 15.0) == pytest.approx(0.1)


def test_a_quiet_machine_has_no_slow_windows() -> None:
    assert slow_windows([(0.0, 0.015), (0.165, 0.18), (0.33, 0.35)], now=0.5) == []


def test_a_slow_look_lasts_until_the_next_one() -> None:
    assert slow_windows([(0.0, 0.1), (0.25, 0.26)], now=0.41) == [Slow(0.0, 0.25, 4.0)]


def test_a_process_that_was_not_let_on_makes_its_pause_slow() -> None:
    assert slow_windows([(0.0, 0.01), (3.01, 3.02)], now=3.17) == [Slow(0.0, 3.01, 10.0)]


def test_a_look_that_is_not_over_counts() -> None:
    [found] = slow_windows([(0.0, 0.01)], now=1.16)
    assert found.end == 1.16 and found.factor == pytest.approx(40.0)


def test_a_late_fire_is_a_violation_unless_the_machine_was_as_slow() -> None:
    story = plain_story()
    story.fire(24.0, 4)
    story.close()
    assert "L1" in {violation.rule for violation in judge(story.history)}
    story.history.slow = [Slow(4.0, 24.5, 3.0)]  # 5 s are 15 s
    assert "L1" in {violation.rule for violation in judge(story.history)}
    story.history.slow = [Slow(4.0, 24.5, 4.5)]
    assert "L1" not in {violation.rule for violation in judge(story.history)}
    story.history.slow, story.history.machine = [], BUSY
    assert "L1" not in {violation.rule for violation in judge(story.history)}
