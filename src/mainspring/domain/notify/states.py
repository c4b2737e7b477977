"""The states of a message, and when it is sent again."""

from __future__ import annotations

from enum import IntEnum

MOST_ATTEMPTS = 12
LONGEST_RETRY = 3600.0
_FIRST_RETRY = 5.0


class MessageState(IntEnum):
    """The number in `notifications.state`."""

    PENDING = 1
    SENT = 2
    DEAD = 3


def attempts_of_series(attempts: int, *, pending: bool) -> int:
    """How often it was tried since it was last asked to be sent. The stored number only grows, because it is the fence
    of the sender: each series begins at a multiple of MOST_ATTEMPTS."""
    if attempts == 0 or (pending and attempts % MOST_ATTEMPTS == 0):
        return 0
    return (attempts - 1) % MOST_ATTEMPTS + 1


def retry_delay(attempts: int, chance: float) -> float:
    """Seconds until the next attempt after the nth one failed: 5 s, 10 s, 20 s, up to an hour, up to 20 % later."""
    base: float = min(LONGEST_RETRY, _FIRST_RETRY * 2.0 ** min(attempts - 1, 20))
    return base * (1 + 0.2 * chance)
