"""The constraints between the timeouts."""

from __future__ import annotations

import pytest

from mainspring.kernel.config import DEFAULT_TIMING, Timing


def test_the_defaults_keep_the_promises_about_failover() -> None:
    timing = DEFAULT_TIMING
    assert timing.beat < timing.kill < timing.rescue
    assert timing.rescue + timing.rescue_sweep < 10, "a dead worker's runs are running elsewhere in less than 10 s"
    assert timing.lease_ttl + timing.lease_renewal < 5, "a dead scheduler's shards are taken over in less than 5 s"


@pytest.mark.parametrize(
    "wrong",
    [
        {"beat": 5.0},
        {"kill": 6.5},
        {"kill": 2.0},
        {"rescue": 5.5},
        {"beat_slack": 2.0},
        {"lease_renewal": 2.5},
        {"lease_margin": 2.0},
        {"lease_ttl": 1.5},
    ],
)
def test_times_under_which_a_run_could_live_twice_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="timing needs"):
        Timing(**wrong)
