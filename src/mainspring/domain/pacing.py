"""Pacing: when the runs of a line with a rate may start.

A token of the bucket (rates.py) has a moment: the run that spends it starts then or later. Tokens are given out up to
AHEAD seconds early, so that a worker can start a run at its moment. At most `burst` and the tokens of AHEAD are with
runs that are not known to have started. So in any window of t seconds at most

    rate * t + 2 * burst + rate * AHEAD

runs start: those whose moment lies in the window (rate * t + burst), and those who had their token before it."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

import msgspec

from mainspring.domain.rates import Bucket

AHEAD = 0.25
_MOST_UNSTARTED = 5000  # of one line: they are counted under its lock
_LOOK = AHEAD / 2  # a line is not checked more often
LONGEST_LOOK = 1.0  # while no run starts for long


class Pace(msgspec.Struct, frozen=True):
    """What a line may give out at `now`. unstarted: the runs that have a token and have not started as far as known."""

    now: datetime
    every: float
    burst: int
    tat: datetime | None
    unstarted: int

    @property
    def tokens(self) -> int:
        """How many runs may have a token now."""
        return max(0, min(self._bucket.tokens(self.now), most_unstarted(self.every, self.burst) - self.unstarted))

    def moment(self, number: int) -> datetime:
        """When the run that gets the token with this number, from 1, may start."""
        return self._bucket.moment(number, self.now)

    def tat_after(self, spent: int) -> datetime | None:
        if spent or self._bucket.ahead(self.now):
            return self._bucket.take(spent, self.now)
        return self.tat

    def look_again(self, spent: int) -> datetime:
        """When the next run of the line may get a token, after `spent` tokens of this time."""
        wait = max(_LOOK, self._bucket.wait(self.now, spent))
        if not spent and self.unstarted >= most_unstarted(self.every, self.burst):
            wait = max(wait, AHEAD if self._bucket.missing(self.now) else LONGEST_LOOK)
        return self.now + timedelta(microseconds=math.ceil(wait * 1e6 - 1e-3))

    @property
    def _bucket(self) -> Bucket:
        return Bucket(self.every, self.burst, self.tat, AHEAD)


def looked_at_later(now: datetime, next_at: datetime | None, every: float) -> bool:
    """Whether the line is to be checked later. A time that is further away than the next token was computed for a
    slower rate, and does not count."""
    return next_at is not None and 0 < (next_at - now).total_seconds() <= max(every, LONGEST_LOOK)


def most_unstarted(every: float, burst: int) -> int:
    """How many runs of a line may have a token and not have started."""
    return min(_MOST_UNSTARTED, math.floor(burst + AHEAD / every + 1e-9))
