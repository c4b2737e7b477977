"""Rollups: what ended in each minute, hour and day, with histograms of start lags and durations.

A histogram has eight buckets for each factor of two, from half a millisecond to 20 days, so a percentile is at most
4.5 % off. It is stored as its first bucket and the counts from there on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import IntEnum
from functools import lru_cache

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


def bucket_of(ms: float) -> int:
    """The same as the SQL fragment `bucket`."""
    return 0 if ms <= LEAST_MS else min(LAST_BUCKET, math.floor(math.log(ms / LEAST_MS) * PER_OCTAVE / math.log(2)))


@lru_cache(maxsize=LAST_BUCKET + 1)
def upper_bound(bucket: int) -> float:
    """Milliseconds below which the values of a bucket lie."""
    return float(LEAST_MS * 2 ** ((bucket + 1) / PER_OCTAVE))


class Histogram:
    """Counts by bucket."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def add(self, first: int | None, counts: Sequence[int] | None) -> None:
        """Add a histogram as it is stored."""
        if first is None or counts is None:
            return
        mine = self.counts
        for bucket, count in enumerate(counts, first):
            if count:
                mine[bucket] = mine.get(bucket, 0) + count

    def add_values(self, values: Iterable[float]) -> None:
        for ms in values:
            bucket = bucket_of(ms)
            self.counts[bucket] = self.counts.get(bucket, 0) + 1

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def about_seconds(self) -> float:
        """About the sum of the values, in seconds."""
        return sum(count * _middle(bucket) for bucket, count in self.counts.items())

    def percentile(self, share: float) -> float | None:
        """Seconds that the fraction `share` of the values does not exceed; two digits are meant. None without
        values."""
        left = math.ceil(share * self.total)
        for bucket in sorted(self.counts):
            left -= self.counts[bucket]
            if left <= 0:
                return two_digits(_middle(bucket))
        return None

    def below(self, ms: float) -> int:
        """How many values lie in buckets that end at `ms` or below."""
        return sum(count for bucket, count in self.counts.items() if upper_bound(bucket) <= ms * 1.000001)


def _middle(bucket: int) -> float:
    """Seconds in the middle of a bucket."""
    return float(LEAST_MS / 1000 * 2 ** ((bucket + 0.5) / PER_OCTAVE))


def two_digits(value: float) -> float:
    if value <= 0:
        return 0.0
    return round(value, 1 - math.floor(math.log10(value)))


def floor_to(moment: datetime, step: timedelta) -> datetime:
    """The last multiple of `step` since the beginning of time, in UTC."""
    seconds = step.total_seconds()
    return datetime.fromtimestamp(moment.timestamp() // seconds * seconds, moment.tzinfo)
