"""Clocks. They are injected, so that tests control the time."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float:
        """Monotonic seconds, for timeouts and for the validity of leases."""

    def wall(self) -> datetime:
        """Aware UTC time, for display and for the offset to the database's clock. Decisions use the database's time."""


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> datetime:
        return datetime.now(UTC)


class ManualClock:
    """A clock that only moves when a test advances it."""

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
    """The database's time, stored as an offset to the local monotonic clock and corrected at each lease renewal.

    `observe` takes the database's time and the local times before and after the round trip that read it. The middle of
    the round trip is the estimate. The estimate with the shortest recent round trip is used.
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
            # Not simply the newest one: a series of trips, each a little longer than the last, would drift away.
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
