"""Which version of an application counts, and what it leaves behind: rules that hold for any history of deployments."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.domain.declarations import (
    KEPT,
    Declaration,
    are_versions,
    forgotten,
    left_behind,
    newer_version,
    number_for,
)

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
IDS = st.frozensets(st.sampled_from("abcdef"), max_size=4)


@st.composite
def histories(draw: st.DrawFn) -> list[Declaration]:
    """Declarations with one name, in any order of deployment."""
    drawn = draw(st.lists(st.tuples(IDS, st.booleans(), st.sampled_from("xyz"), st.booleans()), max_size=25))
    minutes = draw(st.permutations(range(len(drawn))))
    return [
        Declaration(number, f"{number:x}", named, source, job_ids, BEGIN + timedelta(minutes=minutes[number - 1]), live)
        for number, (job_ids, named, source, live) in enumerate(drawn, 1)
    ]


def split(history: list[Declaration], index: int) -> tuple[Declaration, list[Declaration]]:
    mine = history[index % len(history)]
    return mine, [other for other in history if other is not mine]


@settings(max_examples=40)
@given(histories().filter(bool), st.integers(min_value=0))
def test_exactly_one_version_of_those_that_run_counts(history: list[Declaration], index: int) -> None:
    mine, others = split(history, index)
    newer = newer_version(mine, others)
    if newer is not None:
        assert newer.live and newer.number > mine.number and are_versions(mine, newer)
    named = [one for one in history if one.live and one.named]
    counting = [one for one in named if newer_version(one, [other for other in named if other is not one]) is None]
    assert len(counting) == (1 if named else 0)


@settings(max_examples=40)
@given(histories(), IDS, st.booleans())
def test_a_new_version_is_the_newest(history: list[Declaration], job_ids: frozenset[str], named: bool) -> None:
    new = Declaration(0, "ff", named, "x", job_ids, BEGIN)
    number = number_for(new, history)
    assert number > max((one.number for one in history), default=0)
    assert newer_version(msgspec.structs.replace(new, number=number), history) is None


@settings(max_examples=40)
@given(histories().filter(bool), st.integers(min_value=0))
def test_a_known_version_gets_another_number_only_if_nothing_newer_runs(history: list[Declaration], index: int) -> None:
    mine, others = split(history, index)
    number = number_for(mine, others)
    if number != mine.number:
        assert not mine.live and newer_version(mine, others) is None
    if mine.live or newer_version(mine, others) is not None:
        assert number == mine.number, "workers that start again and again take no numbers"


@settings(max_examples=40)
@given(histories().filter(bool), st.integers(min_value=0))
def test_what_is_left_behind_was_declared_and_is_not_declared(history: list[Declaration], index: int) -> None:
    mine, others = split(history, index)
    found = left_behind(mine, others)
    assert found.keys() == frozenset().union(*(other.job_ids for other in others)) - mine.job_ids
    for job_id, left in found.items():
        latest = max((other for other in others if job_id in other.job_ids), key=lambda other: other.last_at)
        assert (left.declared_at, left.own) == (latest.last_at, are_versions(mine, latest))


@settings(max_examples=40)
@given(histories().filter(bool), st.integers(min_value=0), IDS)
def test_nothing_is_forgotten_that_runs_or_that_says_when_a_job_was_declared(
    history: list[Declaration], index: int, left: frozenset[str]
) -> None:
    mine, others = split(history, index)
    spent = forgotten(mine, others, left)
    kept = [other for other in others if other.number not in spent]
    assert mine.number not in spent
    assert all(not other.live for other in others if other.number in spent)
    assert len(kept) <= KEPT + sum(other.live for other in others) + len(left)
    before, after = left_behind(mine, others), left_behind(mine, kept)
    assert {job_id: before[job_id] for job_id in left & before.keys()} == {
        job_id: after[job_id] for job_id in left & after.keys()
    }


def test_a_default_name_needs_evidence() -> None:
    named = Declaration(1, "a", True, "here", frozenset("a"), BEGIN)
    default = Declaration(2, "b", False, "there", frozenset("b"), BEGIN)
    assert are_versions(named, msgspec.structs.replace(default, named=True))
    assert not are_versions(named, default)
    assert are_versions(default, msgspec.structs.replace(default, number=3, job_ids=frozenset()))
    assert are_versions(named, msgspec.structs.replace(default, job_ids=frozenset("ab")))
