"""What follows the loss of an attempt with its worker."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.losses import DEFAULT_MAX_LOSSES, LONGEST_DELAY, SHORTEST_DELAY, Death, after_loss

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


deaths = st.builds(Death, st.booleans(), st.just("killed by SIGKILL"), st.booleans())


@given(st.integers(1, 200), st.none() | st.integers(0, 100), deaths)
def test_a_run_that_is_lost_again_while_it_was_alone_is_not_tried_again(
    losses: int, most: int | None, death: Death
) -> None:
    verdict = after_loss(losses, most, lambda: 0.5, death)
    usual = after_loss(losses, most, lambda: 0.5)
    if usual.delay is None or not death.alone or losses == 1:
        assert verdict == usual
    else:
        assert verdict.delay is None
        assert verdict.reason.startswith(f"lost {losses} times, the last time while it was alone on its worker")
        assert "(killed by SIGKILL)" in verdict.reason
