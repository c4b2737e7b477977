"""Lists and searches: a bound on their time, and turns, so that those of one tenant do not use all connections.

A search may read many rows, whatever its page shows: a filter that nothing matches reads them all. Each statement has
two seconds, and a search has half a second more in all. Half of the connections for reads are for searches, and a
tenant has two of them at most. Those that wait begin in turns, one tenant after the other.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from mainspring.kernel.ids import TenantId

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
    """Whose turn it is. `at_once` follows the size of the pool."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self.at_once = _AT_ONCE
        self._running: Counter[TenantId] = Counter()
        self._waiting: OrderedDict[TenantId, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def turn(self, tenant: TenantId) -> AsyncIterator[None]:
        """Raises SearchesBusy if too many of the tenant wait, or if the turn does not come."""
        if tenant in self._waiting or not self._may_begin(tenant):
            await self._wait(tenant)
        else:
            self._running[tenant] += 1
        try:
            yield
        finally:
            self._end(tenant)

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

    def _may_begin(self, tenant: TenantId) -> bool:
        return self._running.total() < self.at_once and self._running[tenant] < min(_OF_A_TENANT, self.at_once)

    async def _wait(self, tenant: TenantId) -> None:
        waiting = self._waiting.setdefault(tenant, deque())
        if len(waiting) >= _MOST_WAITING:
            raise SearchesBusy
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(mine)
        try:
            async with asyncio.timeout(_LONGEST_WAIT):
                await mine
        except BaseException as error:
            if mine.done() and not mine.cancelled():  # the turn came at the same moment
                self._end(tenant)
            else:
                self._forget(tenant, mine)
            if isinstance(error, TimeoutError):
                raise SearchesBusy from None
            raise

    def _forget(self, tenant: TenantId, mine: asyncio.Future[None]) -> None:
        waiting = self._waiting.get(tenant)
        if waiting is not None and mine in waiting:
            waiting.remove(mine)
            if not waiting:
                del self._waiting[tenant]

    def _end(self, tenant: TenantId) -> None:
        self._running[tenant] -= 1
        if not self._running[tenant]:
            del self._running[tenant]
        for candidate in list(self._waiting):
            if self._may_begin(candidate):
                self._begin_one(candidate)

    def _begin_one(self, tenant: TenantId) -> None:
        waiting = self._waiting.pop(tenant)
        mine = waiting.popleft()
        if waiting:
            self._waiting[tenant] = waiting  # at the end: the others come first
        self._running[tenant] += 1
        mine.set_result(None)
