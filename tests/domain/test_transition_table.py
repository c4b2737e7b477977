"""The transition table is complete: live states have transitions, ended states have none, and the diagram shows all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.transitions import (
    ENDED,
    INITIAL_STATES,
    JOB_TRANSITIONS,
    LIVE,
    TRANSITIONS,
    JobStatus,
    RunState,
    StoredJobStatus,
    StoredState,
    job_may_follow,
    may_follow,
    mermaid,
    shown_state,
)

EDGES = [(before, after) for before, following in TRANSITIONS.items() for after in following]
NOW = datetime(2026, 11, 15, tzinfo=UTC)


def test_every_state_is_live_or_ended() -> None:
    assert frozenset(StoredState) == LIVE | ENDED
    assert not LIVE & ENDED


def test_every_live_state_has_a_way_on_and_can_be_cancelled() -> None:
    assert set(TRANSITIONS) == LIVE
    for state in LIVE:
        assert StoredState.CANCELLED in TRANSITIONS[state], f"{state.name} cannot be cancelled"


def test_an_ended_state_is_final() -> None:
    assert not [(before, after) for before in ENDED for after in StoredState if may_follow(before, after)]


def test_every_edge_says_why() -> None:
    reasons = [why for following in TRANSITIONS.values() for why in following.values()]
    reasons += [why for following in JOB_TRANSITIONS.values() for why in following.values()]
    assert all(why.strip() for why in reasons)


def test_every_live_state_can_be_reached_and_can_reach_an_end() -> None:
    reached = set(INITIAL_STATES)
    for _ in StoredState:
        reached |= {after for before, after in EDGES if before in reached}
    assert reached == set(StoredState)
    ending = set(ENDED)
    for _ in StoredState:
        ending |= {before for before, after in EDGES if after in ending}
    assert ending == set(StoredState)


def test_only_a_claimed_run_or_one_that_waits_for_others_succeeds() -> None:
    succeeding = {before for before, after in EDGES if after is StoredState.SUCCESS}
    assert succeeding == {StoredState.RUNNING, StoredState.WAITING}
    failing = {before for before, after in EDGES if after is StoredState.FAILED}
    assert failing == {StoredState.RUNNING, StoredState.QUEUED, StoredState.HELD, StoredState.WAITING}
    for waiting in (StoredState.QUEUED, StoredState.HELD):
        assert "run_timeout" in TRANSITIONS[waiting][StoredState.FAILED]


@given(st.sampled_from(sorted(INITIAL_STATES)), st.lists(st.sampled_from(list(StoredState)), max_size=200))
def test_a_walk_by_the_table_stops_at_an_end_and_stays_there(birth: StoredState, wishes: list[StoredState]) -> None:
    state, ended = birth, birth in ENDED
    for wish in wishes:
        if may_follow(state, wish):
            assert not ended, f"{state.name} has ended and became {wish.name}"
            state, ended = wish, wish in ENDED
    assert ended == (state in ENDED)


def test_the_diagram_lists_every_edge_birth_and_end() -> None:
    lines = mermaid().splitlines()
    assert lines[0] == "stateDiagram-v2"
    for before, following in TRANSITIONS.items():
        for after, why in following.items():
            assert f"    {before.name} --> {after.name}: {why}" in lines
    assert {line for line in lines if "[*] -->" in line} == {f"    [*] --> {state.name}" for state in INITIAL_STATES}
    assert {line for line in lines if "--> [*]" in line} == {f"    {state.name} --> [*]" for state in ENDED}
    assert len(lines) == 1 + len(EDGES) + len(INITIAL_STATES) + len(ENDED)


def test_jobs_have_a_row_for_every_status_and_a_cancelled_one_can_only_be_resumed() -> None:
    assert set(JOB_TRANSITIONS) == set(StoredJobStatus)
    assert list(JOB_TRANSITIONS[StoredJobStatus.CANCELLED]) == [StoredJobStatus.SCHEDULED]
    shown_only = {JobStatus.RUNNING, JobStatus.FAILED}  # by one-time jobs, from their runs
    assert {status.name for status in StoredJobStatus} == {
        status.value for status in JobStatus if status not in shown_only
    }
    for status in set(StoredJobStatus) - {StoredJobStatus.CANCELLED}:
        assert job_may_follow(status, StoredJobStatus.CANCELLED)


def test_nothing_follows_itself() -> None:
    assert not [state for state in StoredState if may_follow(state, state)]
    assert not [status for status in StoredJobStatus if job_may_follow(status, status)]


@pytest.mark.parametrize("state", [StoredState.QUEUED, StoredState.HELD])
@pytest.mark.parametrize(("ready_in", "scheduled"), [(-1, False), (0, False), (1, True), (None, False)])
def test_a_waiting_run_that_backs_off_is_called_scheduled(
    state: StoredState, ready_in: int | None, scheduled: bool
) -> None:
    ready_at = None if ready_in is None else NOW + timedelta(seconds=ready_in)
    shown = shown_state(state, ready_at, None, NOW)
    assert shown is (RunState.SCHEDULED if scheduled else RunState(state.name))


def test_every_other_state_is_shown_by_its_own_name() -> None:
    later = NOW + timedelta(days=1)
    for state in set(StoredState) - {StoredState.QUEUED, StoredState.HELD, StoredState.WAITING}:
        assert shown_state(int(state), later, NOW, NOW).value == state.name


def test_a_workflow_run_that_has_started_is_called_running() -> None:
    assert shown_state(StoredState.WAITING, NOW, None, NOW) is RunState.WAITING
    assert shown_state(StoredState.WAITING, NOW, NOW, NOW) is RunState.RUNNING


def test_a_claimed_run_is_called_queued_until_it_has_started() -> None:
    assert shown_state(StoredState.RUNNING, NOW, None, NOW) is RunState.QUEUED
    assert shown_state(StoredState.RUNNING, NOW, NOW, NOW) is RunState.RUNNING
