"""The lease: what an acknowledgement is worth, what `store_down` is worth, and what the watchdog is told."""

from __future__ import annotations

import pytest

from mainspring.kernel.config import DEFAULT_TIMING, Timing
from mainspring.worker.lease import Lease
from mainspring.worker.processes.watchdog_client import HEAD_START

NOW = 100.0
KILL = DEFAULT_TIMING.kill
GRACE = DEFAULT_TIMING.cut_off_grace
NEVER = float("inf")


@pytest.fixture
def lease() -> Lease:
    lease = Lease(DEFAULT_TIMING)
    lease.acknowledge(NOW)
    return lease


def test_nothing_ends_before_the_first_acknowledgement() -> None:
    lease = Lease(DEFAULT_TIMING)
    lease.hear_store_down(NOW)
    assert (lease.exclusive_end, lease.end) == (NEVER, NEVER)


def test_without_a_word_everything_ends_together(lease: Lease) -> None:
    assert lease.exclusive_end == lease.end == NOW + KILL
    assert lease.silence(NOW + 3) == 3


def test_store_down_prolongs_ordinary_runs_and_not_exclusive_ones(lease: Lease) -> None:
    lease.hear_store_down(NOW + 4)
    assert lease.exclusive_end == NOW + KILL
    assert lease.end == NOW + 4 + KILL


def test_store_down_answers_prolong_no_further_than_the_grace(lease: Lease) -> None:
    for second in range(1, 70):
        lease.hear_store_down(NOW + second)
    assert lease.end == NOW + GRACE


def test_an_older_answer_that_comes_late_takes_nothing_back(lease: Lease) -> None:
    lease.hear_store_down(NOW + 4)
    lease.hear_store_down(NOW + 2)
    lease.acknowledge(NOW - 1)
    assert (lease.exclusive_end, lease.end) == (NOW + KILL, NOW + 4 + KILL)


def test_an_acknowledgement_after_an_outage_is_worth_what_it_always_is(lease: Lease) -> None:
    lease.hear_store_down(NOW + 30)
    lease.acknowledge(NOW + 31)
    assert lease.exclusive_end == lease.end == NOW + 31 + KILL


def test_the_watchdog_follows_the_exclusive_runs_while_there_are_any(lease: Lease) -> None:
    lease.hear_store_down(NOW + 4)
    assert lease.deadline(exclusive=True, stopping=False) == lease.exclusive_end
    assert lease.deadline(exclusive=False, stopping=True) == lease.end


def test_exclusive_runs_are_gone_before_anybody_could_take_them(lease: Lease) -> None:
    lease.hear_store_down(NOW + 4)
    earliest_rescue = NOW + DEFAULT_TIMING.rescue - DEFAULT_TIMING.beat_slack
    assert lease.deadline(exclusive=True, stopping=True) + HEAD_START < earliest_rescue


def test_a_grace_shorter_than_the_kill_is_refused() -> None:
    with pytest.raises(ValueError, match="timing needs kill <= cut_off_grace"):
        Timing(cut_off_grace=4.9)
