"""How often passwords can be tried.

Attempts in vain are counted by user and by address, at all servers together. No user is locked out: a browser in which
the user has signed in before has a count of its own, which strangers cannot use up, and a link of an admin asks for no
count at all.
"""

from __future__ import annotations

import hashlib
from ipaddress import ip_address, ip_network
from math import ceil
from typing import NamedTuple

from mainspring.domain.errors import TooManyRequests
from mainspring.store import attempts
from mainspring.store.pool import Store


class AttemptBound(NamedTuple):
    """At most so many attempts at once, and then so many in a second."""

    most: float
    per_second: float


OF_A_USER = AttemptBound(10, 1 / 60)
OF_AN_ADDRESS = AttemptBound(30, 1 / 2)
OF_A_KNOWN_BROWSER = AttemptBound(10, 1 / 10)

Keys = list[bytes]


class Guesses:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def charge(self, mail: str, address: str | None) -> Keys:
        """Count an attempt of a stranger. Raises TooManyRequests if there were too many. Returns what to refund if the
        password is right."""
        return await self._charge({_key("user", mail): OF_A_USER, _key("address", _network(address)): OF_AN_ADDRESS})

    async def charge_address(self, address: str | None) -> Keys:
        """Count an answer of a provider, which can be made up."""
        return await self._charge({_key("address", _network(address)): OF_AN_ADDRESS})

    async def charge_known(self, who: str) -> Keys:
        """Count an attempt in a browser that is known, or in a session."""
        return await self._charge({_key("known", who): OF_A_KNOWN_BROWSER})

    async def refund(self, keys: Keys) -> None:
        async with self._store.change() as connection:
            await attempts.refund(connection, keys)

    async def _charge(self, bounds: dict[bytes, AttemptBound]) -> Keys:
        async with self._store.change() as connection:
            for key, bound in sorted(bounds.items()):
                wait = await attempts.charge(connection, key, *bound)
                if wait is not None:  # none of them is counted
                    raise too_many(wait)
            await attempts.delete_old(connection)  # more than were inserted now
        return sorted(bounds)


def too_many(seconds: float) -> TooManyRequests:
    error = TooManyRequests(
        "there were too many attempts with wrong passwords", code="too_many_attempts",
        hint="try again later, or in a browser in which you have signed in before; an admin can send you a link",
    )  # fmt: skip
    error.retry_after = max(1, ceil(seconds))
    return error


def _key(kind: str, value: str) -> bytes:
    return hashlib.sha256(f"{kind} {value}".encode(errors="surrogatepass")).digest()[:16]


def _network(address: str | None) -> str:
    """Who has one address of IPv6 has 2**64 of them."""
    try:
        found = ip_address((address or "").partition("%")[0])
    except ValueError:
        return address or ""
    return str(ip_network(f"{found}/64", strict=False)) if found.version == 6 else str(found)
