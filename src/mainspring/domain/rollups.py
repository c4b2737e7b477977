"""Rollups: what ended in each minute, hour and day, with histograms of start lags and durations.

A histogram has eight buckets for each factor of two, from half a millisecond to 20 days, so a percentile is at most
4.5 % off. It is stored as its first bucket and the counts from there on.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import IntEnum
from itertools import accumulate
from operator import add, mul

import msgspec

from mainspring.wire.insights import WindowWord

LEAST_MS = 0.5
PER_OCTAVE = 8
LAST_BUCKET = 254
NO_BUCKET = 255
MOST_GROUPS = 500  # groups of failures that a tenant has in an hour; the rest is one group
OTHER_GROUP = "other"
SAMPLE_JOBS = 20  # of a group of failures, in each hour


class Span(IntEnum):
    """How much time a rollup covers."""

    MINUTE = 1
    HOUR = 2
    DAY = 3


KEPT = {Span.MINUTE: timedelta(hours=26), Span.HOUR: timedelta(days=90), Span.DAY: timedelta(days=400)}


class Window(msgspec.Struct, frozen=True):
    """A look back: from which rollups it is read, and how long the steps of its series are."""

    length: timedelta
    span: Span
    step: timedelta


WINDOWS: dict[WindowWord, Window] = {
    "1h": Window(timedelta(hours=1), Span.MINUTE, timedelta(minutes=1)),
    "6h": Window(timedelta(hours=6), Span.MINUTE, timedelta(minutes=1)),
    "24h": Window(timedelta(hours=24), Span.MINUTE, timedelta(minutes=5)),
    "7d": Window(timedelta(days=7), Span.HOUR, timedelta(hours=1)),
    "30d": Window(timedelta(days=30), Span.HOUR, timedelta(hours=2)),
}


BOUNDS = [LEAST_MS * 2 ** (bucket / PER_OCTAVE) for bucket in range(1, LAST_BUCKET + 1)]  # between two buckets


def bucket_of(ms: float) -> int:
    """The bucket of a duration. The SQL fragment `bucket` computes the same."""
    return bisect_right(BOUNDS, ms)


def upper_bound(bucket: int) -> float:
    """Milliseconds below which the values of a bucket lie."""
    return float(LEAST_MS * 2 ** ((bucket + 1) / PER_OCTAVE))


class Histogram:
    """Counts by bucket."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts = [0] * (LAST_BUCKET + 1)

    def add(self, first: int | None, counts: Sequence[int] | None) -> None:
        """Add a histogram as it is stored."""
        if first is None or counts is None:
            return
        mine, end = self.counts, first + len(counts)
        mine[first:end] = map(add, mine[first:end], counts)

    def add_all(self, other: Histogram) -> None:
        self.counts = list(map(add, self.counts, other.counts))

    def add_values(self, values: Iterable[float]) -> None:
        for ms in values:
            self.counts[bucket_of(ms)] += 1

    @property
    def total(self) -> int:
        return sum(self.counts)

    @property
    def about_seconds(self) -> float:
        """About the sum of the values, in seconds."""
        return float(sum(map(mul, self.counts, _MIDDLES)))

    def percentiles(self, *shares: float) -> list[float | None]:
        """Seconds that these fractions of the values do not exceed; two digits are meant. None without values."""
        reached = list(accumulate(self.counts))
        if not reached[-1]:
            return [None] * len(shares)
        return [two_digits(_MIDDLES[bisect_left(reached, math.ceil(share * reached[-1]))]) for share in shares]

    def below(self, octaves: Iterable[int]) -> list[int]:
        """How many values lie below LEAST_MS times two to the power of each of these numbers."""
        reached = list(accumulate(self.counts))
        return [reached[min(LAST_BUCKET, PER_OCTAVE * octave - 1)] for octave in octaves]


def _middle(bucket: int) -> float:
    """Seconds in the middle of a bucket."""
    return float(LEAST_MS / 1000 * 2 ** ((bucket + 0.5) / PER_OCTAVE))


_MIDDLES = [_middle(bucket) for bucket in range(LAST_BUCKET + 1)]


def two_digits(value: float) -> float:
    if value <= 0:
        return 0.0
    return round(value, 1 - math.floor(math.log10(value)))


def floor_to(moment: datetime, step: timedelta) -> datetime:
    """The last multiple of `step` since the beginning of time, in UTC."""
    seconds = step.total_seconds()
    return datetime.fromtimestamp(moment.timestamp() // seconds * seconds, moment.tzinfo)
