"""When a failed attempt is tried again."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

RETRY, GIVE_UP = "retry", "give_up"
BACKOFFS = ("exponential", "linear", "fibonacci", "constant")


class RetryRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """What follows a failure of a certain kind; exactly one of errors, exit_codes and http_statuses is given."""

    then: str
    errors: list[str] | None = None
    exit_codes: list[int] | None = None
    http_statuses: list[int | str] | None = None
    after: float | None = None


class RetryPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """max_attempts counts the first one. Delays are seconds; jitter is the share by which a delay may vary."""

    max_attempts: int = 4
    backoff: str = "exponential"
    base: float = 2.0
    cap: float = 600.0
    jitter: float = 0.1
    rules: list[RetryRule] = []

    def delay(self, attempts_spent: int, random: Callable[[], float]) -> float:
        """Seconds to wait after `attempts_spent` tries (1 or more); `random` gives numbers in [0, 1)."""
        plain = min(self.cap, self.base * _factor(self.backoff, attempts_spent))
        return max(0.0, plain * (1.0 + self.jitter * (2.0 * random() - 1.0)))


DEFAULT_RETRY = RetryPolicy()


def _factor(backoff: str, attempt: int) -> float:
    match backoff:
        case "exponential":
            return float(2 ** min(attempt - 1, 62))
        case "linear":
            return float(attempt)
        case "fibonacci":
            before, current = 0, 1
            for _ in range(min(attempt, 90) - 1):
                before, current = current, before + current
            return float(current)
        case "constant":
            return 1.0
        case _:
            raise ValueError(f"unknown backoff {backoff!r}")
