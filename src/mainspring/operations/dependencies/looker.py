"""The looker: finds out what runs wait for that depend on other jobs.

A fire creates the run as WAITING, with a row for each parent, in one statement. What the run waits for is found out
after the commit: the parent's run for the same time, or its next success, or nothing. So everybody who ends a run of
the parent later sees the row, and the live runs of the parent are held while they are looked at. Whoever is killed in
between has lost nothing: the next round of any server looks at it. Every half minute all runs that wait are looked at.

A parent with jitter may have long to go until it fires for the time of a run. Such a run is not looked at again before
that, unless the next fires of its parents change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from uuid import UUID

from mainspring.kernel.ids import TenantId
from mainspring.kernel.logs import get_logger
from mainspring.operations.dependencies.parents import looked_at
from mainspring.operations.dependencies.times import parents_at_their_times
from mainspring.operations.dependencies.waiting import settle_waiting
from mainspring.operations.lifecycle.dispatch import release, runs_ended
from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.signals import Signals
from mainspring.store import dependencies
from mainspring.store.deadlocks import despite_deadlocks
from mainspring.store.dependencies import ToLookAt, WaitRow
from mainspring.store.pool import AWAY, Connection, Store

log = get_logger("looker")

_AT_ONCE = 200  # runs in one transaction
_ROUNDS = 30  # after so many rounds all runs that wait are looked at
Page = Callable[[Connection, UUID, int], Awaitable[list[ToLookAt]]]


class Looker:
    name = "dependency_looker"
    interval = 1.0

    def __init__(self, store: Store, signals: Signals) -> None:
        self._store = store
        self._signals = signals
        self._rounds = 0
        self._wanted = False
        self._left: dict[UUID, ToLookAt] = {}  # those whose parents have yet to fire
        self._looking: asyncio.Task[None] | None = None
        signals.waits.subscribe(self.look)

    async def run_once(self) -> int:
        """Returns how many runs were looked at."""
        self._rounds += 1
        everything = self._rounds % _ROUNDS == 0
        return await self._pass(dependencies.all_waiting if everything else dependencies.to_look_at)

    def look(self) -> None:
        """Look soon."""
        self._wanted = True
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._answer())

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _answer(self) -> None:
        try:
            while self._wanted:
                self._wanted = False
                await self._pass(dependencies.to_look_at)
        except AWAY as error:
            log.warning("runs that wait could not be looked at; the next round does it", error=repr(error))

    async def _pass(self, page: Page) -> int:
        looked = 0
        left: dict[UUID, ToLookAt] = {}
        after = dependencies.FIRST
        while True:
            async with self._store.reads.acquire() as connection:
                found = await page(connection, after, _AT_ONCE)
            changed = [item for item in found if self._left.get(item.run_id) != item]
            still = {item.run_id for item in found} - {item.run_id for item in changed}
            for tenant in sorted({item.tenant_id for item in changed}):
                items = [item for item in changed if item.tenant_id == tenant]
                still |= await despite_deadlocks(partial(self._look_at, tenant, items))
            left |= {item.run_id: item for item in found if item.run_id in still}
            looked += len(changed)
            if len(found) < _AT_ONCE:
                if page is dependencies.to_look_at:
                    self._left = left
                return looked
            after = found[-1].run_id

    async def _look_at(self, tenant: TenantId, items: Sequence[ToLookAt]) -> set[UUID]:
        """Returns those whose parents have yet to fire."""
        effects, left = Effects(), set[UUID]()
        parents = sorted({parent for item in items for parent in item.parents})
        async with self._store.change() as connection:
            await dependencies.follow_runs(connection, tenant, parents)
            held = await dependencies.hold_parents(connection, tenant, parents)
            locked = await dependencies.lock_waiting(connection, [item.run_id for item in items])
            alive = [run.run_id for run in locked]
            if gone := [item.run_id for item in items if item.run_id not in set(alive)]:
                jobs = [(run.tenant_id, run.job_id) for run in await dependencies.ended_parents(connection, gone)]
                await dependencies.delete_waits(connection, gone, jobs)
            found = await dependencies.waits_to_look_at(connection, alive)
            if waits := [wait for wait in found if wait.parent_run not in held]:
                left = await _look(connection, tenant, waits)
            await settle_waiting(connection, locked, effects)
            await runs_ended(connection, effects)
            await release(connection, effects)
        effects.publish(self._signals)
        return left


async def _look(connection: Connection, tenant: TenantId, waits: Sequence[WaitRow]) -> set[UUID]:
    """Returns the runs whose parents have yet to fire."""
    parents = await parents_at_their_times(connection, tenant, waits)
    after = [looked_at(wait, now, moment) for wait, (now, moment) in zip(waits, parents, strict=True)]
    if changed := [new for new, old in zip(after, waits, strict=True) if new != old]:
        await dependencies.write_waits(connection, changed)
    return {wait.run_id for wait in after if not wait.looked}
