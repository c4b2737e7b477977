"""Clocks are injected, so that tests move time by hand and no decision hides a clock read."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds that only rise; for timeouts and lease trust."""

    def wall(self) -> datetime:
        """Aware UTC time; for display and for the offset to the database's clock, never for a decision alone."""


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> datetime:
        return datetime.now(UTC)


class ManualClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, start: datetime) -> None:
        self._wall = start
        self._monotonic = 1000.0

    def monotonic(self) -> float:
        return self._monotonic

    def wall(self) -> datetime:
        return self._wall

    def advance(self, seconds: float) -> None:
        self._wall += timedelta(seconds=seconds)
        self._monotonic += seconds


class DatabaseClock:
    """The database's time, kept as an offset to our monotonic clock and corrected at each lease renewal.

    `observe` takes the database's time and the moments before and after the round trip that fetched it; the middle
    of the round trip is our best guess, and the guess with the shortest round trip of late is the one we keep.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset: float | None = None
        self._round_trip = float("inf")
        self._observed_at = 0.0

    def observe(self, database_time: datetime, sent: float, received: float) -> None:
        round_trip = received - sent
        stale = received - self._observed_at > 10.0
        if stale or round_trip <= self._round_trip * 1.5:
            self._offset = database_time.timestamp() - (sent + received) / 2
            # Not simply this one: a chain of trips, each a little longer than the last, would lead away from the best.
            self._round_trip = round_trip if stale else min(round_trip, self._round_trip)
            self._observed_at = received

    @property
    def known(self) -> bool:
        return self._offset is not None

    def timestamp(self) -> float:
        """Seconds since the epoch by the database's clock."""
        if self._offset is None:
            raise RuntimeError("the database's time has not been observed yet")
        return self._clock.monotonic() + self._offset

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.timestamp(), UTC)
