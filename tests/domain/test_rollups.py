"""Histograms keep percentiles within their bound, and fingerprints keep what tells failures apart."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.fingerprints import fingerprint, masked
from mainspring.domain.rollups import LAST_BUCKET, PER_OCTAVE, Histogram, bucket_of, upper_bound

VALUES = st.floats(min_value=0.6, max_value=1e9)


@given(st.lists(VALUES, min_size=1, max_size=50), st.sampled_from([0.5, 0.9, 0.99]))
def test_a_percentile_is_at_most_nine_percent_off_with_its_rounding(values: list[float], share: float) -> None:
    histogram = Histogram()
    histogram.add_values(values)
    exact = sorted(values)[math.ceil(share * len(values)) - 1] / 1000
    [found] = histogram.percentiles(share)
    assert found is not None and abs(found - exact) <= 0.09 * exact + 1e-9


@given(st.floats(min_value=0, max_value=1e12))
def test_a_value_lies_in_its_bucket(ms: float) -> None:
    bucket = bucket_of(ms)
    assert 0 <= bucket <= LAST_BUCKET
    assert bucket == LAST_BUCKET or ms <= upper_bound(bucket) * 1.000001
    assert bucket == 0 or ms * 1.000001 >= upper_bound(bucket - 1)


@given(st.lists(VALUES, max_size=30), st.lists(VALUES, max_size=30))
def test_adding_histograms_is_adding_their_values(first: list[float], second: list[float]) -> None:
    both, apart = Histogram(), Histogram()
    both.add_values([*first, *second])
    for values in (first, second):
        buckets = [bucket_of(value) for value in values]
        if buckets:
            low = min(buckets)
            apart.add(low, [buckets.count(bucket) for bucket in range(low, max(buckets) + 1)])
    assert both.counts == apart.counts and both.total == len(first) + len(second)
    apart.add_all(both)
    assert apart.total == 2 * both.total


@given(st.lists(VALUES, max_size=30))
def test_below_counts_the_values_of_whole_octaves(values: list[float]) -> None:
    histogram = Histogram()
    histogram.add_values(values)
    octaves = (1, 5, 12, 40)
    expected = [sum(bucket_of(value) < PER_OCTAVE * octave for value in values) for octave in octaves]
    assert histogram.below(octaves) == expected


def test_without_values_there_are_no_percentiles() -> None:
    assert Histogram().percentiles(0.5, 0.99) == [None, None]


@pytest.mark.parametrize(
    ("error", "title"),
    [
        ("TimeoutError: after 30.5 s\n  at x", "TimeoutError: after # s"),
        ("\n  KeyError: 'alice'", "KeyError: '…'"),
        ("FileNotFoundError: /srv/a/b.csv:17", "FileNotFoundError: <path>:#"),
        ("no run 0190a1b2-1234-7abc-8def-0123456789ab", "no run <id>"),
        ("object at 0x7fa55b12", "object at <id>"),
        ("GET https://a.example/b?c=1 failed", "GET <url> failed"),
        ("exit status 1", "exit status #"),
        ("a decade of feedback", "a decade of feedback"),
        ("", ""),
    ],
)
def test_what_differs_from_one_time_to_the_next_is_masked(error: str, title: str) -> None:
    assert masked(error) == title
    assert masked(title) == title or "#" in title  # a masked title is stable


def test_failures_of_other_tasks_and_with_other_words_have_other_fingerprints() -> None:
    names = {fingerprint(task, title) for task in ("a", "b") for title in ("x: #", "y: #")}
    assert len(names) == 4


@given(st.text(alphabet="ae09/\\'\"`.-:~\n “é", max_size=60))
def test_every_text_has_a_title_of_one_line(error: str) -> None:
    assert len(masked(error).splitlines()) <= 1
    fingerprint("task", masked(error))
