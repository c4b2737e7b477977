"""What follows the loss of an attempt with its worker."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.losses import DEFAULT_MAX_LOSSES, LONGEST_DELAY, SHORTEST_DELAY, after_loss

fractions = st.floats(0.0, 1.0, exclude_max=True)


@given(st.integers(1, 200), st.none() | st.integers(0, 100), fractions)
def test_a_run_is_lost_as_often_as_its_job_allows_and_no_more(losses: int, most: int | None, chance: float) -> None:
    verdict = after_loss(losses, most, lambda: chance)
    allowed = DEFAULT_MAX_LOSSES if most is None else most
    if losses > allowed:
        assert verdict.delay is None
        assert verdict.reason.startswith("lost once" if losses == 1 else f"lost {losses} times")
        assert f"max_losses is {allowed}" in verdict.reason
    elif losses == 1:
        assert verdict.delay == 0.0
    else:
        assert verdict.delay is not None and SHORTEST_DELAY <= verdict.delay <= LONGEST_DELAY


def test_the_delays_differ() -> None:
    assert [after_loss(2, 3, lambda: chance).delay for chance in (0.0, 0.5)] == [1.0, 15.5]  # noqa: B023
