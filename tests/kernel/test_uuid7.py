"""Identifiers: UUIDv7 values that increase within a batch, and the accepted form of UUIDs."""

from __future__ import annotations

import time
from itertools import pairwise
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.kernel.ids import parse_uuid, uuid7, uuid7_batch, uuid7_texts


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 3000) | st.integers(4090, 9000))
def test_a_batch_rises_and_repeats_nothing(count: int) -> None:
    ids = uuid7_batch(count)
    assert len(ids) == count
    assert all(before < after for before, after in pairwise(ids))


def test_each_is_a_version_7_of_the_usual_variant() -> None:
    for one in uuid7_batch(5000):
        assert one.version == 7
        assert one.variant == RFC_4122


def test_the_first_48_bits_are_the_milliseconds_of_its_birth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.kernel.ids._last", 0)
    before = time.time_ns() // 1_000_000
    created = uuid7().int >> 80
    assert before <= created <= time.time_ns() // 1_000_000


def test_those_made_one_by_one_rise_too_also_within_a_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 1_800_000_000_000_000_000)
    ids = [uuid7() for _ in range(5000)]
    texts = [text for _ in range(2000) for text in uuid7_texts(3)]
    assert all(before < after for before, after in pairwise(ids))
    assert all(before < after for before, after in pairwise([str(ids[-1]), *texts]))


def test_a_clock_that_was_set_back_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 1_900_000_000_000_000_000)
    uuid7()
    monkeypatch.setattr("time.time_ns", lambda: 1_800_000_000_000_000_000)
    assert uuid7().int >> 80 == 1_800_000_000_000


def test_a_batch_longer_than_its_running_number_goes_on_in_the_next_millisecond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mainspring.kernel.ids._last", 0)
    ids = uuid7_batch(4097)
    assert (ids[4096].int >> 80) - (ids[0].int >> 80) == 1
    assert (ids[4095].int >> 64) & 0xFFF == 0xFFF


def test_batches_do_not_collide() -> None:
    seen = [one for _ in range(50) for one in uuid7_batch(200)]
    assert len(set(seen)) == len(seen)


@settings(deadline=None)
@given(st.uuids())
def test_a_uuid_is_read_in_either_case(value: UUID) -> None:
    assert parse_uuid(str(value)) == value
    assert parse_uuid(str(value).upper()) == value


GOOD = "01981234-89ab-7cde-8123-456789abcdef"


@pytest.mark.parametrize(
    "text",
    ["", "daily_report", GOOD[:-1], GOOD + "0", GOOD + "\n", " " + GOOD, "{" + GOOD + "}", "urn:uuid:" + GOOD,
     GOOD.replace("-", ""), GOOD.replace("a", "g"), GOOD.replace("1", "١"), "\x00" + GOOD[1:]],
)  # fmt: skip
def test_anything_else_is_no_uuid(text: str) -> None:
    assert parse_uuid(text) is None
