"""How many slots a queue wants, and how far it is behind."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.scaling import LEAST_WITHIN, MOST_WITHIN, QueueLoad, scale_of

IDLE = QueueLoad(waiting=0, running=0, rate=0.0, duration=None, oldest=None, free=0)


def load(**fields: object) -> QueueLoad:
    return msgspec.structs.replace(IDLE, **fields)


@pytest.mark.parametrize(
    ("given", "backlog", "wanted"),
    [
        (load(), 0.0, 0),
        (load(free=10), 0.0, 0),
        # The first run wakes a queue that was scaled to nothing, whatever is known of it.
        (load(waiting=1), 1.0, 1),
        (load(waiting=1, duration=0.001), 0.001, 1),
        # 600 runs of 10 s within a minute: 100 slots.
        (load(waiting=600, duration=10.0), 6000.0, 100),
        # What runs goes on meanwhile. Free slots take what waits.
        (load(waiting=60, running=20, duration=10.0), 30.0, 30),
        (load(waiting=5, running=1, free=10, oldest=0.1, duration=10.0), 0.0, 2),
        # Free slots that have not taken it for so long do not take it.
        (load(waiting=5, free=10, oldest=30.0, duration=10.0), 5.0, 1),
        # Many short runs that are over between two looks: 50 a second of 0.1 s keep five slots busy.
        (load(rate=50.0, duration=0.1, free=8), 0.0, 5),
        # A run has one slot: no more than there are runs.
        (load(waiting=3, duration=3600.0), 10800.0, 3),
        # Limits of the queue.
        (load(waiting=600, duration=10.0, concurrency=7), 6000.0, 7),
        (load(waiting=600, duration=10.0, every=1.0), 6000.0, 10),
        (load(waiting=600, running=2, duration=10.0, paused=True), 3000.0, 2),
    ],
)
def test_slots_wanted_and_backlog(given: QueueLoad, backlog: float, wanted: int) -> None:
    found = scale_of(given, 60.0)
    assert (found.backlog, found.slots_wanted) == (pytest.approx(backlog), wanted)


_counts, _seconds = st.integers(0, 10**9), st.floats(0, 1e9)


@given(
    st.builds(
        QueueLoad, _counts, _counts, st.floats(0, 1e6), st.none() | _seconds, st.none() | _seconds, _counts,
        st.none() | st.integers(1, 10**6), st.none() | st.floats(1e-6, 2.6e6), st.booleans(),
    ),
    st.floats(LEAST_WITHIN, MOST_WITHIN),
)  # fmt: skip
def test_it_wants_nothing_for_nothing_and_never_less_than_what_runs(load: QueueLoad, within: float) -> None:
    found = scale_of(load, within)
    assert found.backlog >= 0 and found.slots_wanted >= load.running
    if load.waiting and not load.paused:
        assert found.slots_wanted >= 1
    if not (load.waiting or load.running or load.rate):
        assert (found.backlog, found.slots_wanted) == (0, 0)
    if not load.rate:
        assert found.slots_wanted <= load.running + load.waiting
