"""Intake of rate limits and circuit breakers."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.domain.breakers import DEFAULT_FAILURES, DEFAULT_OPEN_FOR
from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.limits import check_path, read_per
from mainspring.domain.limits import CircuitBreaker, RateLimit
from mainspring.domain.rates import MOST_BURST, parse_rate
from mainspring.domain.texts import shown
from mainspring.wire.jobs import JobRequest
from mainspring.wire.limits import CircuitBreakerIn, RateLimitIn

_MOST_RATES = 2  # migration 0023 has an index for each
_MOST_FAILURES = 1000
_LONGEST_OPEN = 30 * 86400.0


def read_rates(request: JobRequest) -> list[RateLimit] | None:
    """The rate limits of a request, from `rate_limit` or its short form."""
    given = request.rate_limit
    if request.rate is not None:
        if given is not None:
            raise InvalidInput(
                "rate is a short form of rate_limit", field="rate", hint="give one of them: rate, or rate_limit"
            )
        return [_rate(RateLimitIn(request.rate), "rate", text=True)]
    if given is None or given is False:
        return None
    if given is True:
        raise InvalidInput("true is not a rate", field="rate_limit", expected="a rate, an object, a list or false")
    if isinstance(given, str):
        return [_rate(RateLimitIn(given), "rate_limit", text=True)]
    if isinstance(given, RateLimitIn):
        return [_rate(given, "rate_limit")]
    if not 1 <= len(given) <= _MOST_RATES:
        raise InvalidInput(
            f"{len(given)} rates are given", field="rate_limit", expected=f"1 to {_MOST_RATES}",
            hint=None if given else "false removes the rates of a job",
        )  # fmt: skip
    rates = [_rate(item, f"rate_limit[{place}]") for place, item in enumerate(given)]
    if len({(rate.key, rate.per) for rate in rates}) < len(rates):
        raise InvalidInput("two rates are about the same", field="rate_limit", hint="leave one of them out")
    return rates


def _rate(given: RateLimitIn, field: str, *, text: bool = False) -> RateLimit:
    rate = parse_rate(given.rate, field if text else f"{field}.rate")
    burst = rate.usual_burst if given.burst is None else given.burst
    if not 1 <= burst <= MOST_BURST:
        raise InvalidInput(
            f"{shown(burst)} is not a burst", field=f"{field}.burst", expected=f"1 to {MOST_BURST:,}",
            hint="it is how many runs may start at once after a pause",
        )  # fmt: skip
    if given.key is not None:
        check_path(given.key, f"{field}.key")
    return RateLimit(str(rate), rate.every, burst, given.key, read_per(given.per, f"{field}.per"))


def rates_as_given(rates: Sequence[RateLimit] | None) -> list[RateLimitIn] | None:
    """The request that says what `rates` say."""
    return None if rates is None else [RateLimitIn(item.rate, item.burst, item.key, item.per) for item in rates]


def read_breaker(given: bool | CircuitBreakerIn | None) -> CircuitBreaker | None:
    if given is None or given is False:
        return None
    fields = CircuitBreakerIn() if given is True else given
    failures = DEFAULT_FAILURES if fields.failures is None else fields.failures
    if not 1 <= failures <= _MOST_FAILURES:
        raise InvalidInput(
            f"{shown(failures)} is not a number of failures", field="circuit_breaker.failures",
            expected=f"1 to {_MOST_FAILURES:,}", hint="so many failures in a row open the breaker; false removes it",
        )  # fmt: skip
    open_for = DEFAULT_OPEN_FOR
    if fields.open_for is not None:
        open_for = parse_duration(fields.open_for, "circuit_breaker.open_for", least=1, most=_LONGEST_OPEN)
    return CircuitBreaker(failures, open_for, read_per(fields.per, "circuit_breaker.per"))


def breaker_as_given(breaker: CircuitBreaker | None) -> CircuitBreakerIn | None:
    """The request that says what `breaker` says."""
    return None if breaker is None else CircuitBreakerIn(breaker.failures, breaker.open_for, breaker.per)
