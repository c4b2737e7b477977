"""The constraints between the timeouts, and the arithmetic of leases."""

from __future__ import annotations

import pytest

from mainspring.kernel.config import DEFAULT_TIMING, LeaseTerms, Timing, kill_for, rescue_for


def test_the_defaults_keep_the_promises_about_failover() -> None:
    timing = DEFAULT_TIMING
    assert timing.beat < timing.kill < timing.rescue
    assert timing.rescue + timing.rescue_sweep < 17, "a vanished worker's runs are running elsewhere within 17 s"
    assert timing.lease_ttl + timing.lease_renewal < 5, "a dead scheduler's shards are taken over in less than 5 s"


@pytest.mark.parametrize(("rescue", "kill"), [(7.0, 5.0), (10.0, 8.0), (15.0, 12.0), (75.0, 60.0), (300.0, 240.0)])
def test_a_worker_ends_its_runs_a_fifth_and_at_least_two_seconds_before_the_rescue(rescue: float, kill: float) -> None:
    assert kill_for(rescue) == kill
    assert rescue_for(kill) == rescue


@pytest.mark.parametrize(
    ("wanted", "granted"),
    [
        (None, LeaseTerms(5.0, 7.0, 5.0, 7.0)),
        (15.0, LeaseTerms(12.0, 15.0, 60.0, 75.0)),
        (7.0, LeaseTerms(5.0, 7.0, 60.0, 75.0)),
        (75.0, LeaseTerms(60.0, 75.0, 60.0, 75.0)),
        (120.0, LeaseTerms(96.0, 120.0, 96.0, 120.0)),
        (300.0, LeaseTerms(240.0, 300.0, 240.0, 300.0)),
        (0.1, LeaseTerms(5.0, 7.0, 60.0, 75.0)),
        (1e9, LeaseTerms(240.0, 300.0, 240.0, 300.0)),
    ],
)
def test_what_a_server_grants(wanted: float | None, granted: LeaseTerms) -> None:
    assert DEFAULT_TIMING.granted(wanted) == granted


@pytest.mark.parametrize(
    "wrong",
    [
        {"beat": 5.0},
        {"kill": 14.0},
        {"kill": 2.0},
        {"rescue": 13.0},
        {"base_kill": 6.0},
        {"base_kill": 2.0},
        {"base_rescue": 6.0},
        {"exclusive_kill": 74.5},
        {"exclusive_rescue": 60.5},
        {"beat_slack": 2.0},
        {"cut_off_grace": 4.9},
        {"lease_renewal": 2.5},
        {"lease_margin": 2.0},
        {"lease_ttl": 1.5},
    ],
)
def test_times_under_which_a_run_could_live_twice_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="timing needs"):
        Timing(**wrong)
