"""Lists and searches: a bound on their time, and turns, so that those of one tenant do not use all connections.

A search may read many rows, whatever its page shows: a filter that nothing matches reads them all. Each statement has
two seconds, and a search has half a second more in all. Half of the connections for reads are for searches, and a
tenant has two of them at most. Those that wait begin in turns, one tenant after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from mainspring.kernel.ids import TenantId
from mainspring.kernel.tenant_turns import NoTurn, Share, TenantTurns

SECONDS = 2.0  # for each statement
_MORE_IN_ALL = 0.5
_AT_ONCE = 3
_OF_A_TENANT = 2
_MOST_WAITING = 50  # of a tenant
_LONGEST_WAIT = 10.0


class SearchTooSlow(Exception):
    """The time of a search is over. The same search would take as long again."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"a search took longer than {seconds:g} s")
        self.seconds = seconds


class SearchesBusy(Exception):
    """The tenant has too many searches."""


class Searches:
    """Whose turn it is, and for how long."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self._turns = TenantTurns(
            Share(_AT_ONCE), Share(_OF_A_TENANT), most_waiting=_MOST_WAITING, longest_wait=_LONGEST_WAIT
        )

    def allow(self, at_once: int) -> None:
        """Allow so many searches at a time. The number follows the size of the pool."""
        self._turns.server = Share(at_once)

    @asynccontextmanager
    async def turn(self, tenant: TenantId) -> AsyncIterator[None]:
        """Raises SearchesBusy if too many of the tenant wait, or if the turn does not come."""
        try:
            await self._turns.take(tenant)
        except NoTurn:
            raise SearchesBusy from None
        try:
            yield
        finally:
            self._turns.give_back(tenant)

    @asynccontextmanager
    async def limited(self, seconds: float | None = None) -> AsyncIterator[None]:
        """Raises SearchTooSlow if what is inside takes too long, or is cancelled by PostgreSQL for that."""
        allowed = seconds or self.seconds
        limit = asyncio.timeout(allowed + _MORE_IN_ALL)
        try:
            async with limit:
                yield
        except asyncpg.QueryCanceledError as error:
            raise SearchTooSlow(allowed) from error
        except TimeoutError as error:
            if limit.expired():
                raise SearchTooSlow(allowed) from error
            raise
