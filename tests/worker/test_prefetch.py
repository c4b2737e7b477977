"""The worker holds more than it has slots for only when it completes runs faster than exchanges bring them."""

from __future__ import annotations

from mainspring.worker.exchange.prefetch import MOST_PREFETCHED, Prefetch

SLOTS = 20


def fed(prefetch: Prefetch, *, rate: float, seconds_each: float, duration: float, step: float = 0.01) -> Prefetch:
    now = prefetch._observed_at
    for _ in range(int(duration / step)):
        now += step
        completed = round(rate * step)
        assert prefetch.observe(now, completed, completed * seconds_each)
    return prefetch


def test_an_idle_worker_prefetches_nothing() -> None:
    assert Prefetch(SLOTS, 0.0).prefetch == 0


def test_no_ops_fill_the_window_quickly() -> None:
    prefetch = fed(Prefetch(SLOTS, 0.0), rate=20_000, seconds_each=1e-5, duration=0.2)
    assert prefetch.prefetch == MOST_PREFETCHED


def test_a_moderate_rate_prefetches_what_75_ms_complete() -> None:
    prefetch = fed(Prefetch(SLOTS, 0.0), rate=1000, seconds_each=0.01, duration=1.0)
    assert 60 <= prefetch.prefetch <= 80


def test_slow_runs_are_not_hoarded() -> None:
    prefetch = fed(Prefetch(SLOTS, 0.0), rate=100, seconds_each=1.0, duration=2.0)
    assert prefetch.prefetch == 0


def test_slow_runs_that_end_together_are_not_mistaken_for_fast_ones() -> None:
    prefetch = Prefetch(SLOTS, 0.0)
    prefetch.observe(1.0, 0, 0.0)
    prefetch.observe(1.002, SLOTS, SLOTS * 1.0)
    assert prefetch.prefetch == 0


def test_the_appetite_goes_when_completions_stop() -> None:
    prefetch = fed(Prefetch(SLOTS, 0.0), rate=20_000, seconds_each=1e-5, duration=0.2)
    prefetch.observe(0.2 + 1.0, 0, 0.0)
    assert prefetch.prefetch == 0


def test_two_looks_in_the_same_instant_count_once() -> None:
    prefetch = Prefetch(SLOTS, 0.0)
    assert not prefetch.observe(0.0005, 10, 0.0)
    assert prefetch.observe(0.002, 10, 0.0)
