"""Pacing: when the runs of a line with a rate may start (a token bucket, as GCRA).

`tat` is when the bucket is full again. A token has a moment: the run that spends it starts then or later. Tokens are
given out up to AHEAD seconds early, so that a worker can start a run at its moment. At most `burst` and the tokens of
AHEAD are with runs that are not known to have started. So in any window of t seconds at most

    rate * t + 2 * burst + rate * AHEAD

runs start: those whose moment lies in the window (rate * t + burst), and those who had their token before it."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

import msgspec

AHEAD = 0.25
_MOST_UNSTARTED = 5000  # of one line: they are counted under its lock
_LOOK = AHEAD / 2  # a line is not looked at more often
LONGEST_LOOK = 1.0  # while nobody starts for long


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
        in_time = math.floor((AHEAD - self._missing) / self.every + self.burst + 1e-9)
        return max(0, min(in_time, most_unstarted(self.every, self.burst) - self.unstarted))

    def moment(self, number: int) -> datetime:
        """When the run that gets the token with this number, from 1, may start."""
        return self._after(max(0.0, self._missing + (number - self.burst) * self.every))

    def tat_after(self, spent: int) -> datetime | None:
        if spent or (self.tat is not None and self.tat > self._after(self._missing)):
            return self._after(self._missing + spent * self.every)
        return self.tat

    def look_again(self, spent: int) -> datetime:
        """When the next run of the line may get a token, after `spent` tokens of this time."""
        wait = max(_LOOK, self._missing + (spent + 1 - self.burst) * self.every - AHEAD)
        if not spent and self.unstarted >= most_unstarted(self.every, self.burst):
            wait = max(wait, AHEAD if self._missing else LONGEST_LOOK)
        return self._after(wait)

    @property
    def _missing(self) -> float:
        """Seconds until the bucket is full. It is never more than empty and AHEAD, also if the rate has changed."""
        left = 0.0 if self.tat is None else (self.tat - self.now).total_seconds()
        return min(max(0.0, left), self.burst * self.every + AHEAD)

    def _after(self, seconds: float) -> datetime:
        return self.now + timedelta(microseconds=math.ceil(seconds * 1e6 - 1e-3))


def looked_at_later(now: datetime, next_at: datetime | None, every: float) -> bool:
    """Whether the line is to be looked at later. A time that is further away than the next token was computed for a
    slower rate, and does not count."""
    return next_at is not None and 0 < (next_at - now).total_seconds() <= max(every, LONGEST_LOOK)


def most_unstarted(every: float, burst: int) -> int:
    """How many runs of a line may have a token and not have started."""
    return min(_MOST_UNSTARTED, math.floor(burst + AHEAD / every + 1e-9))
