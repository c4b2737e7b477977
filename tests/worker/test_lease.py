"""The lease: what an acknowledgement is worth, and what `store_down` is worth."""

from __future__ import annotations

import pytest

from mainspring.kernel.config import DEFAULT_TIMING
from mainspring.wire.exchange import LeaseGrant
from mainspring.worker.lease import WorkerLease
from mainspring.worker.processes.watchdog_client import HEAD_START

NOW = 100.0
KILL = DEFAULT_TIMING.base_kill
GRACE = DEFAULT_TIMING.cut_off_grace
NEVER = float("inf")
GRANT = LeaseGrant(DEFAULT_TIMING.kill, DEFAULT_TIMING.exclusive_kill)


@pytest.fixture
def lease() -> WorkerLease:
    """Of a worker that was granted nothing."""
    lease = WorkerLease(DEFAULT_TIMING)
    lease.acknowledge(NOW)
    return lease


@pytest.fixture
def granted() -> WorkerLease:
    lease = WorkerLease(DEFAULT_TIMING)
    lease.extend(GRANT)
    lease.acknowledge(NOW)
    return lease


def test_nothing_ends_before_the_first_acknowledgement() -> None:
    lease = WorkerLease(DEFAULT_TIMING)
    lease.hear_store_down(NOW)
    lease.extend(GRANT)
    assert (lease.exclusive_end, lease.ordinary_end, lease.end) == (NEVER, NEVER, NEVER)


def test_without_a_word_and_without_a_grant_everything_ends_together(lease: WorkerLease) -> None:
    assert lease.exclusive_end == lease.ordinary_end == lease.end == NOW + KILL
    assert lease.silence(NOW + 3) == 3


def test_with_a_grant_exclusive_runs_outlive_ordinary_ones(granted: WorkerLease) -> None:
    assert (granted.ordinary_end, granted.exclusive_end, granted.end) == (NOW + 12, NOW + 60, NOW + 60)


def test_a_grant_counts_from_the_last_acknowledgement(lease: WorkerLease) -> None:
    lease.extend(GRANT)
    assert (lease.ordinary_end, lease.exclusive_end) == (NOW + 12, NOW + 60)


def test_store_down_prolongs_ordinary_runs_and_not_exclusive_ones(lease: WorkerLease) -> None:
    lease.hear_store_down(NOW + 4)
    assert lease.exclusive_end == NOW + KILL
    assert lease.ordinary_end == lease.end == NOW + 4 + KILL


def test_with_a_grant_store_down_is_worth_what_an_acknowledgement_is(granted: WorkerLease) -> None:
    granted.hear_store_down(NOW + 20)
    assert (granted.ordinary_end, granted.exclusive_end) == (NOW + 20 + 12, NOW + 60)


@pytest.mark.parametrize("grant", [None, GRANT], ids=["no grant", "a grant"])
def test_store_down_answers_prolong_no_further_than_the_grace(grant: LeaseGrant | None) -> None:
    lease = WorkerLease(DEFAULT_TIMING, grant)
    lease.acknowledge(NOW)
    for second in range(1, 70):
        lease.hear_store_down(NOW + second)
    assert lease.ordinary_end == lease.end == NOW + GRACE


def test_a_lease_longer_than_the_grace_has_no_use_for_it() -> None:
    lease = WorkerLease(DEFAULT_TIMING, LeaseGrant(240.0, 240.0))
    lease.acknowledge(NOW)
    lease.hear_store_down(NOW + 100)
    assert lease.ordinary_end == lease.exclusive_end == NOW + 240


def test_an_older_answer_that_comes_late_takes_nothing_back(lease: WorkerLease) -> None:
    lease.hear_store_down(NOW + 4)
    lease.hear_store_down(NOW + 2)
    lease.acknowledge(NOW - 1)
    assert (lease.exclusive_end, lease.end) == (NOW + KILL, NOW + 4 + KILL)


def test_an_acknowledgement_after_an_outage_is_worth_what_it_always_is(lease: WorkerLease) -> None:
    lease.hear_store_down(NOW + 30)
    lease.acknowledge(NOW + 31)
    assert lease.exclusive_end == lease.end == NOW + 31 + KILL


@pytest.mark.parametrize("wanted", [None, 7.0, 15.0, 75.0, 300.0])
def test_runs_are_gone_before_anybody_could_take_them(wanted: float | None) -> None:
    """The moment in which they may end, and the head start of the watchdog, fit between the kill and the rescue."""
    terms = DEFAULT_TIMING.granted(wanted)
    lease = WorkerLease(DEFAULT_TIMING, LeaseGrant(terms.kill, terms.exclusive_kill))
    lease.acknowledge(NOW)
    for end, rescue in ((lease.ordinary_end, terms.rescue), (lease.exclusive_end, terms.exclusive_rescue)):
        assert end + lease.moment + HEAD_START < NOW + rescue - DEFAULT_TIMING.beat_slack
