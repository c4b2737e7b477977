"""For how long the client repeats a call that gets no answer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from mainspring.domain.durations import parse_duration
from mainspring.wire.fields import Duration

DEFAULT_PATIENCE = 15.0
REFUSED_PATIENCE = 2.0


@dataclass(frozen=True, slots=True)
class Patience:
    """For how many seconds a call is repeated: in all, and while connections are refused, because there a server may
    come back, but is more often not running or has another address."""

    seconds: float = DEFAULT_PATIENCE
    refused: float = REFUSED_PATIENCE

    @classmethod
    def of(cls, seconds: float | None) -> Patience:
        """The patience of a client that was given `seconds`. They hold for refused connections too."""
        return cls() if seconds is None else cls(seconds, seconds)

    def at_most(self, seconds: float, *, persist: bool = False) -> Patience:
        """This patience, at most for so many seconds. `persist`: the server has answered before, so it is likely to
        come back."""
        refused = self.seconds if persist else self.refused
        return Patience(min(self.seconds, seconds), min(refused, seconds))


def checked_patience(value: Duration | None) -> float | None:
    """The patience in seconds. Raises InvalidInput if it is no duration."""
    if value is None:
        return None
    return parse_duration(value.total_seconds() if isinstance(value, timedelta) else value, "patience")
