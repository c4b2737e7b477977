"""Delays between attempts: the four kinds of backoff, the cap and the jitter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.retry import DEFAULT_RETRY, RetryPolicy
from mainspring.wire.states import BACKOFFS


def middle() -> float:
    """The random number at which jitter changes nothing."""
    return 0.5


def delays(policy: RetryPolicy, count: int) -> list[float]:
    return [policy.delay(spent, middle) for spent in range(1, count + 1)]


def test_the_default_waits_two_four_and_eight_seconds() -> None:
    assert DEFAULT_RETRY.max_attempts == 4
    assert delays(DEFAULT_RETRY, 3) == [2.0, 4.0, 8.0]


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        ("exponential", [3.0, 6.0, 12.0, 24.0, 48.0, 96.0]),
        ("linear", [3.0, 6.0, 9.0, 12.0, 15.0, 18.0]),
        ("fibonacci", [3.0, 3.0, 6.0, 9.0, 15.0, 24.0]),
        ("constant", [3.0, 3.0, 3.0, 3.0, 3.0, 3.0]),
    ],
)
def test_each_kind_grows_in_its_own_way(backoff: str, expected: list[float]) -> None:
    assert delays(RetryPolicy(backoff=backoff, base=3.0), 6) == expected


def test_there_are_no_other_kinds() -> None:
    assert set(BACKOFFS) == {"exponential", "linear", "fibonacci", "constant"}
    with pytest.raises(ValueError, match="quadratic"):
        RetryPolicy(backoff="quadratic").delay(1, middle)


def test_a_delay_stops_growing_at_the_cap() -> None:
    assert delays(RetryPolicy(base=100.0, cap=250.0), 4) == [100.0, 200.0, 250.0, 250.0]


policies = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 1000),
    backoff=st.sampled_from(BACKOFFS),
    base=st.floats(0, 1e9),
    cap=st.floats(0, 1e9),
    jitter=st.floats(0, 1),
)


@given(policies, st.integers(1, 1000), st.floats(0, 1, exclude_max=True))
def test_jitter_strays_by_its_share_and_no_further(policy: RetryPolicy, spent: int, chance: float) -> None:
    plain = policy.delay(spent, middle)
    delay = policy.delay(spent, lambda: chance)
    slack = 1e-9 * (1 + plain)
    assert 0 <= plain <= policy.cap
    assert plain * (1 - policy.jitter) - slack <= delay <= plain * (1 + policy.jitter) + slack
    assert delay >= 0


@given(policies, st.integers(1, 999))
def test_a_later_attempt_never_waits_less(policy: RetryPolicy, spent: int) -> None:
    assert policy.delay(spent, middle) <= policy.delay(spent + 1, middle)


def test_jitter_reaches_both_ends() -> None:
    policy = RetryPolicy(base=10.0, jitter=0.1)
    assert policy.delay(1, lambda: 0.0) == pytest.approx(9.0)
    assert policy.delay(1, lambda: 0.999999) == pytest.approx(11.0, abs=1e-4)
