"""Circuit breakers: after some failures in a row no run is admitted for a while. Then one run is the probe: if it
succeeds the breaker closes, and if it fails the breaker stays open for another while."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

DEFAULT_FAILURES = 5
DEFAULT_OPEN_FOR = 600.0


class Breaker(msgspec.Struct, frozen=True):
    """The state of a breaker. failed: the failures in a row. opened_at: None if it is closed. next_at: until then it
    admits no run; None if it admits a probe. probe: the run that was admitted as the probe."""

    failed: int = 0
    opened_at: datetime | None = None
    next_at: datetime | None = None
    probe: UUID | None = None

    @property
    def word(self) -> str:
        if self.opened_at is None:
            return "closed"
        return "half_open" if self.next_at is None else "open"

    def after(self, attempts: Iterable[tuple[UUID, bool]], now: datetime, failures: int, open_for: float) -> Breaker:
        """The breaker after attempts have ended: each with its run, and whether it succeeded. While the breaker is
        open only the attempt of its probe counts: the others began before."""
        state = self
        for run_id, succeeded in attempts:
            if state.opened_at is not None and run_id != state.probe:
                continue
            if succeeded:
                state = Breaker()
                continue
            failed = state.failed + 1
            if state.opened_at is None and failed < failures:
                state = Breaker(failed)
            else:
                state = Breaker(failed, state.opened_at or now, now + timedelta(seconds=open_for))
        return state

    def room(self, now: datetime) -> int | None:
        """How many runs the breaker admits. None: any number."""
        if self.opened_at is None:
            return None
        return 0 if self.probe is not None or (self.next_at is not None and self.next_at > now) else 1

    def without_probe(self) -> Breaker:
        """The breaker after its probe has ended without success or failure: another run may be the probe."""
        return msgspec.structs.replace(self, probe=None)

    def probing(self, run_id: UUID | None) -> Breaker:
        """The breaker when it is time for a probe: this run is the probe, or the next one."""
        return msgspec.structs.replace(self, next_at=None, probe=run_id)
