"""The states of a circuit breaker: whatever happens, it follows its definition."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import hypothesis.strategies as st
from hypothesis import given

from mainspring.domain.breakers import Breaker

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)
OPEN_FOR = 60.0

events = st.lists(
    st.one_of(
        st.tuples(st.just("pass"), st.integers(1, 100)),
        st.tuples(st.sampled_from(["admit", "lose the probe", "stale success", "stale failure"]), st.just(0)),
        st.tuples(st.sampled_from(["success", "failure"]), st.just(0)),
    ),
    max_size=60,
)


@given(st.integers(1, 4), events)
def test_it_opens_probes_and_closes(failures: int, moves: list[tuple[str, int]]) -> None:
    """Against a model that counts what it has seen."""
    state, now, number = Breaker(), BEGIN, 0
    in_a_row, until, probe = 0, None, None
    for what, seconds in moves:
        if what == "pass":
            now += timedelta(seconds=seconds)
        elif what == "admit":
            room = state.room(now)
            assert room == (None if until is None else int(now >= until and probe is None))
            if room == 1:
                number += 1
                probe = UUID(int=number)
                state = state.probing(probe)
        elif what == "lose the probe":
            probe, state = None, state.without_probe()
        else:
            succeeded = what.endswith("success")
            run = UUID(int=10**6) if what.startswith("stale") or probe is None else probe
            state = state.after([(run, succeeded)], now, failures, OPEN_FOR)
            if until is None:
                in_a_row = 0 if succeeded else in_a_row + 1
                if in_a_row >= failures:
                    until = now + timedelta(seconds=OPEN_FOR)
            elif run == probe:
                probe = None
                in_a_row, until = (0, None) if succeeded else (in_a_row, now + timedelta(seconds=OPEN_FOR))
        assert (state.opened_at is None) == (until is None)
        assert state.probe == probe
        assert state.word == ("closed" if until is None else "half_open" if state.next_at is None else "open")


def test_of_many_failures_at_once_only_the_first_ones_count() -> None:
    runs = [(UUID(int=number), False) for number in range(9)]
    state = Breaker().after(runs, BEGIN, 3, OPEN_FOR)
    assert (state.failed, state.opened_at, state.next_at) == (3, BEGIN, BEGIN + timedelta(seconds=OPEN_FOR))
