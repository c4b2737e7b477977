"""How often a token and an address may call: a bucket for each, in the memory of the server.

What keeps runs alive and stops them is not limited: calls of workers, and urgent operations (access/urgency.py) with a
token that was valid before.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from datetime import UTC, datetime, timedelta
from ipaddress import IPv6Address, ip_address, ip_network

from mainspring.domain.errors import TooManyRequests
from mainspring.domain.rates import Bucket, Rate
from mainspring.kernel.clock import Clock

_AT_ONCE = 10.0  # seconds: so much of the rate may come at once
_MOST = 10_000  # buckets
_START = datetime(2000, 1, 1, tzinfo=UTC)


class RequestRates:
    """`per_token`, `per_address`: None for no limit."""

    def __init__(self, clock: Clock, per_token: Rate | None = None, per_address: Rate | None = None) -> None:
        self._clock = clock
        self._tokens = None if per_token is None else _Buckets(per_token)
        self._addresses = None if per_address is None else _Buckets(per_address)

    def count_token(self, token: Hashable, name: str) -> None:
        """Raises TooManyRequests."""
        if self._tokens is not None:
            self._count(self._tokens, token, f"the token {name!r}")

    def count_address(self, address: str | None) -> None:
        """Raises TooManyRequests. Addresses of one IPv6 network of 64 bits count together."""
        if self._addresses is not None and address is not None:
            self._count(self._addresses, _network(address), f"the address {address}")

    def _count(self, buckets: _Buckets, key: Hashable, whose: str) -> None:
        wait = buckets.take(key, _START + timedelta(seconds=self._clock.monotonic()))
        if wait:
            seconds = max(1, math.ceil(wait))
            error = TooManyRequests(f"{whose} may call {buckets.rate}", hint=f"try again after {seconds} s")
            error.retry_after = seconds
            raise error


class _Buckets:
    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self._every = rate.every
        self._burst = max(1, math.ceil(_AT_ONCE / rate.every))
        self._full_at: dict[Hashable, datetime] = {}

    def take(self, key: Hashable, now: datetime) -> float:
        """Take a token. Returns the seconds until there is one, 0 if it was taken."""
        bucket = Bucket(self._every, self._burst, self._full_at.get(key))
        if not bucket.tokens(now):
            return bucket.wait(now)
        if len(self._full_at) >= _MOST and key not in self._full_at:
            self._forget(now)
        self._full_at[key] = bucket.take(1, now)
        return 0.0

    def _forget(self, now: datetime) -> None:
        """Forget buckets that are full, or else those that are nearly full: they lose least."""
        self._full_at = {key: full_at for key, full_at in self._full_at.items() if full_at > now}
        if len(self._full_at) >= _MOST:
            emptiest = sorted(self._full_at.items(), key=lambda item: item[1], reverse=True)
            self._full_at = dict(emptiest[: _MOST // 2])


def _network(address: str) -> Hashable:
    try:
        found = ip_address(address)
    except ValueError:  # a socket without addresses
        return address
    if isinstance(found, IPv6Address) and found.ipv4_mapped is None:
        return ip_network((found, 64), strict=False)
    return found
