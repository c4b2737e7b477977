"""Decides whether and when a failed attempt is retried: from rules, backoff and what the attempt itself asks for."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from mainspring.wire.execution import Cause

RETRY, GIVE_UP = "retry", "give_up"
LONGEST_DELAY = 366 * 86400.0  # a called service may ask for any delay; a very long one would overflow the timestamp
# Errors that a task raises to decide itself (sdk/errors.py). No rule overrides them.
_GIVEN_UP = ("GiveUp", "BadPayload", "mainspring.sdk.errors.GiveUp", "mainspring.sdk.errors.BadPayload")
_ASKED_FOR = "mainspring.sdk.errors.Retry"  # the full name, because applications have errors named Retry too


class RetryRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """What follows a failure of a certain kind. Exactly one of errors, exit_codes and http_statuses is given."""

    then: str
    errors: list[str] | None = None
    exit_codes: list[int] | None = None
    http_statuses: list[int | str] | None = None
    after: float | None = None

    def match(self, cause: Cause) -> str | None:
        """The part of `cause` that this rule matches, as text. None if the rule does not match."""
        if self.errors is not None:
            found = next(
                (error for error in cause.errors if any(_is_called(error, name) for name in self.errors)), None
            )
            return None if found is None else f"with {found}"
        if self.exit_codes is not None:
            return f"with exit code {cause.exit_code}" if cause.exit_code in self.exit_codes else None
        status = cause.http_status
        if self.http_statuses is None or status is None:
            return None
        matches = status in self.http_statuses or f"{status // 100}xx" in self.http_statuses
        return f"with HTTP status {status}" if matches else None


class RetryPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """max_attempts includes the first attempt. Delays are seconds. jitter is the fraction by which a delay varies."""

    max_attempts: int = 4
    backoff: str = "exponential"
    base: float = 2.0
    cap: float = 600.0
    jitter: float = 0.1
    rules: list[RetryRule] = []

    def delay(self, attempts_spent: int, random: Callable[[], float]) -> float:
        """Seconds to wait after `attempts_spent` attempts (1 or more). `random` returns numbers in [0, 1)."""
        plain = min(self.cap, self.base * _factor(self.backoff, attempts_spent))
        return max(0.0, plain * (1.0 + self.jitter * (2.0 * random() - 1.0)))


DEFAULT_RETRY = RetryPolicy()
_UNKNOWN = Cause()


class RetryVerdict(msgspec.Struct, frozen=True):
    """What follows a failed attempt: the next attempt after `delay` seconds. None ends the run, for `reason`."""

    delay: float | None
    reason: str = ""


def after_failure(
    policy: RetryPolicy,
    attempts_spent: int,
    max_attempts: int,
    random: Callable[[], float],
    *,
    cause: Cause | None = None,
    wanted: bool = True,
    retry_after: float | None = None,
) -> RetryVerdict:
    """Decide whether a failed attempt is followed by another one.

    A task that raised GiveUp, or whose payload is invalid, is not retried. A task that raised Retry is retried while it
    has attempts left. Otherwise the first rule that matches decides. Without such a rule `wanted` decides, which the
    executor sets. If several delays are asked for, the longest one counts.
    """
    cause = cause or _UNKNOWN
    if not wanted and any(name in cause.errors for name in _GIVEN_UP):
        return RetryVerdict(None, "failed and asked not to be retried")
    least = 0.0
    if _ASKED_FOR not in cause.errors:
        for index, rule in enumerate(policy.rules):
            matched = rule.match(cause)
            if matched is None:
                continue
            if rule.then == GIVE_UP:
                return RetryVerdict(None, f"failed {matched}: rule retry.rules[{index}] gives up")
            wanted, least = True, rule.after or 0.0
            break
    if not wanted:
        return RetryVerdict(None, "failed and asked not to be retried")
    if attempts_spent >= max_attempts:
        return RetryVerdict(
            None, f"failed {attempts_spent} {'time' if attempts_spent == 1 else 'times'}, no tries left"
        )
    delay = max(policy.delay(attempts_spent, random), least, retry_after or 0.0)
    return RetryVerdict(min(delay, LONGEST_DELAY))


def _is_called(error: str, name: str) -> bool:
    """Whether the class has this name, with or without its module."""
    return error == name.removeprefix("builtins.") or error.rpartition(".")[2] == name


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
