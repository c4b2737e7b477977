"""The worker holds more than it has slots for only when it completes runs faster than exchanges bring them."""

from __future__ import annotations

from mainspring.worker.exchange.prefetch import MOST_PREFETCHED, Appetite

SLOTS = 20


def fed(appetite: Appetite, *, rate: float, seconds_each: float, duration: float, step: float = 0.01) -> Appetite:
    now = appetite._observed_at
    for _ in range(int(duration / step)):
        now += step
        completed = round(rate * step)
        assert appetite.observe(now, completed, completed * seconds_each)
    return appetite


def test_an_idle_worker_prefetches_nothing() -> None:
    assert Appetite(SLOTS, 0.0).prefetch == 0


def test_no_ops_fill_the_window_quickly() -> None:
    appetite = fed(Appetite(SLOTS, 0.0), rate=20_000, seconds_each=1e-5, duration=0.2)
    assert appetite.prefetch == MOST_PREFETCHED


def test_a_moderate_pace_prefetches_what_75_ms_complete() -> None:
    appetite = fed(Appetite(SLOTS, 0.0), rate=1000, seconds_each=0.01, duration=1.0)
    assert 60 <= appetite.prefetch <= 80


def test_slow_runs_are_not_hoarded() -> None:
    appetite = fed(Appetite(SLOTS, 0.0), rate=100, seconds_each=1.0, duration=2.0)
    assert appetite.prefetch == 0


def test_slow_runs_that_end_together_are_not_mistaken_for_fast_ones() -> None:
    appetite = Appetite(SLOTS, 0.0)
    appetite.observe(1.0, 0, 0.0)
    appetite.observe(1.002, SLOTS, SLOTS * 1.0)
    assert appetite.prefetch == 0


def test_the_appetite_goes_when_completions_stop() -> None:
    appetite = fed(Appetite(SLOTS, 0.0), rate=20_000, seconds_each=1e-5, duration=0.2)
    appetite.observe(0.2 + 1.0, 0, 0.0)
    assert appetite.prefetch == 0


def test_two_looks_in_the_same_instant_count_once() -> None:
    appetite = Appetite(SLOTS, 0.0)
    assert not appetite.observe(0.0005, 10, 0.0)
    assert appetite.observe(0.002, 10, 0.0)
