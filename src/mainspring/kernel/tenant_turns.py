"""Turns: what few may do at a time, shared fairly between tenants.

Those that wait begin one tenant after the other, in the order in which they came within a tenant. No request passes the
one that is next: otherwise many small requests could keep a large one waiting for ever.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import inf

from mainspring.kernel.ids import TenantId


class NoTurn(Exception):
    """Too many of the tenant wait, or the turn did not come in time."""


@dataclass(frozen=True, slots=True)
class Share:
    """How many may have a turn at a time, and how many bytes these may have together. One that is alone may have any
    number of bytes."""

    count: int
    size: float = inf

    def divided(self, by: int) -> Share:
        """The part of one of several processes. Each may have one turn at least."""
        return Share(max(1, self.count // by), self.size / by)

    def has_room(self, held: HeldTurns, size: int) -> bool:
        return held.count < self.count and (not held.count or held.size + size <= self.size)


@dataclass(slots=True)
class HeldTurns:
    """What has a turn now."""

    count: int = 0
    size: int = 0

    def add(self, size: int) -> None:
        self.count += 1
        self.size += size

    def remove(self, size: int) -> None:
        self.count -= 1
        self.size -= size


@dataclass(slots=True, eq=False)
class _Waiting:
    size: int
    turn: asyncio.Future[None]


class TenantTurns:
    """`server`: what all tenants share. `tenant`: the most that one of them has. `most_waiting` of a tenant wait, each
    for `longest_wait` seconds."""

    def __init__(self, server: Share, tenant: Share, *, most_waiting: int, longest_wait: float) -> None:
        self.server = server
        self._tenant = tenant
        self._most_waiting = most_waiting
        self._longest_wait = longest_wait
        self._all = HeldTurns()
        self._held: dict[TenantId, HeldTurns] = {}
        self._waiting: OrderedDict[TenantId, deque[_Waiting]] = OrderedDict()

    @property
    def held(self) -> int:
        """How many have a turn."""
        return self._all.count

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def turn(self, tenant: TenantId, size: int = 0) -> AsyncIterator[None]:
        """Raises NoTurn."""
        await self.take(tenant, size)
        try:
            yield
        finally:
            self.give_back(tenant, size)

    async def take(self, tenant: TenantId, size: int = 0) -> None:
        """Take a turn, which `give_back` ends. Raises NoTurn."""
        if not self._waiting and self._has_room(tenant, size):
            self._begin(tenant, size)
            return
        if tenant not in self._waiting and self._has_room(tenant, size) and self._next() is None:
            self._begin(tenant, size)  # the others wait for turns of their own tenants
            return
        await self._wait(tenant, size)

    def give_back(self, tenant: TenantId, size: int = 0) -> None:
        self._all.remove(size)
        held = self._held[tenant]
        held.remove(size)
        if not held.count:
            del self._held[tenant]
        self._begin_waiting()

    def _has_room(self, tenant: TenantId, size: int) -> bool:
        return self._tenant_has_room(tenant, size) and self.server.has_room(self._all, size)

    def _tenant_has_room(self, tenant: TenantId, size: int) -> bool:
        return self._tenant.has_room(self._held.get(tenant) or HeldTurns(), size)

    def _begin(self, tenant: TenantId, size: int) -> None:
        self._all.add(size)
        self._held.setdefault(tenant, HeldTurns()).add(size)

    def _next(self) -> TenantId | None:
        """The tenant whose turn is next. None if all that wait belong to tenants that have as much as they may."""
        return next(
            (tenant for tenant, waiting in self._waiting.items() if self._tenant_has_room(tenant, waiting[0].size)),
            None,
        )

    def _begin_waiting(self) -> None:
        while (tenant := self._next()) is not None and self._has_room(tenant, self._waiting[tenant][0].size):
            waiting = self._waiting.pop(tenant)
            first = waiting.popleft()
            if waiting:
                self._waiting[tenant] = waiting  # at the end: the others come first
            if not first.turn.done():  # it may have given up at the same moment
                self._begin(tenant, first.size)
                first.turn.set_result(None)

    async def _wait(self, tenant: TenantId, size: int) -> None:
        waiting = self._waiting.setdefault(tenant, deque())
        if len(waiting) >= self._most_waiting:
            raise NoTurn
        mine = _Waiting(size, asyncio.get_running_loop().create_future())
        waiting.append(mine)
        try:
            async with asyncio.timeout(self._longest_wait):
                await mine.turn
        except BaseException as error:
            if mine.turn.done() and not mine.turn.cancelled():  # the turn came at the same moment
                self.give_back(tenant, size)
            else:
                self._forget(tenant, mine)
            if isinstance(error, TimeoutError):
                raise NoTurn from None
            raise

    def _forget(self, tenant: TenantId, mine: _Waiting) -> None:
        waiting = self._waiting.get(tenant)
        if waiting is not None and mine in waiting:
            waiting.remove(mine)
            if not waiting:
                del self._waiting[tenant]
            self._begin_waiting()  # it may have been the one that is next
