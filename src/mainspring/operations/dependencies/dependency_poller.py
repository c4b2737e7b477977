"""The dependency poller finds out what runs wait for that depend on other jobs.

A fire creates the run as WAITING, with a row for each parent, in one statement. After the commit the poller finds out
what the run waits for: the parent's run for the same time, the parent's next success, or nothing. Every transaction
that ends a run of the parent later sees the row, and the live runs of the parent are locked while the poller reads
them. If the process is killed in between, nothing is lost: the next round of any server polls the run. Every 30 rounds,
which is half a minute, all runs that wait are polled.

A parent with jitter may fire much later than the time of a run. Such a run is polled again only after that fire, or
when the next fires of its parents change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from uuid import UUID

from mainspring.kernel.ids import TenantId
from mainspring.kernel.logs import get_logger
from mainspring.operations.dependencies.parents import updated_wait
from mainspring.operations.dependencies.times import parents_at_their_times
from mainspring.operations.dependencies.wait_decisions import settle_waiting
from mainspring.operations.lifecycle.dispatch import release, runs_ended
from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.signals import Signals
from mainspring.store import dependencies
from mainspring.store.deadlocks import despite_deadlocks
from mainspring.store.dependencies import RunToPoll, WaitRow
from mainspring.store.pool import NOT_NOW, Connection, Store

log = get_logger("dependency_poller")

_AT_ONCE = 200  # runs in one transaction
_ROUNDS = 30  # after so many rounds all runs that wait are polled
Page = Callable[[Connection, UUID, int], Awaitable[list[RunToPoll]]]


class DependencyPoller:
    name = "dependency_poller"
    interval = 1.0

    def __init__(self, store: Store, signals: Signals) -> None:
        self._store = store
        self._signals = signals
        self._rounds = 0
        self._wanted = False
        self._left: dict[UUID, RunToPoll] = {}  # the runs whose parents have yet to fire
        self._polling: asyncio.Task[None] | None = None
        signals.waits.subscribe(self.wake)

    async def run_once(self) -> int:
        """Return how many runs were polled."""
        self._rounds += 1
        everything = self._rounds % _ROUNDS == 0
        return await self._pass(dependencies.all_waiting if everything else dependencies.runs_to_poll)

    def wake(self) -> None:
        """Poll soon."""
        self._wanted = True
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._answer())

    async def close(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)

    async def _answer(self) -> None:
        try:
            while self._wanted:
                self._wanted = False
                await self._pass(dependencies.runs_to_poll)
        except NOT_NOW as error:
            log.warning("runs that wait could not be polled; the next round does it", error=repr(error))

    async def _pass(self, page: Page) -> int:
        polled = 0
        left: dict[UUID, RunToPoll] = {}
        after = dependencies.FIRST
        while True:
            async with self._store.reads.acquire() as connection:
                found = await page(connection, after, _AT_ONCE)
            changed = [item for item in found if self._left.get(item.run_id) != item]
            still = {item.run_id for item in found} - {item.run_id for item in changed}
            for tenant in sorted({item.tenant_id for item in changed}):
                items = [item for item in changed if item.tenant_id == tenant]
                still |= await despite_deadlocks(partial(self._poll_runs, tenant, items))
            left |= {item.run_id: item for item in found if item.run_id in still}
            polled += len(changed)
            if len(found) < _AT_ONCE:
                if page is dependencies.runs_to_poll:
                    self._left = left
                return polled
            after = found[-1].run_id

    async def _poll_runs(self, tenant: TenantId, items: Sequence[RunToPoll]) -> set[UUID]:
        """Return the runs whose parents have yet to fire."""
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
            found = await dependencies.waits_to_poll(connection, alive)
            if waits := [wait for wait in found if wait.parent_run not in held]:
                left = await _poll_waits(connection, tenant, waits)
            await settle_waiting(connection, locked, effects)
            await runs_ended(connection, effects)
            await release(connection, effects)
        effects.publish(self._signals)
        return left


async def _poll_waits(connection: Connection, tenant: TenantId, waits: Sequence[WaitRow]) -> set[UUID]:
    """Return the runs whose parents have yet to fire."""
    parents = await parents_at_their_times(connection, tenant, waits)
    after = [updated_wait(wait, now, moment) for wait, (now, moment) in zip(waits, parents, strict=True)]
    if changed := [new for new, old in zip(after, waits, strict=True) if new != old]:
        await dependencies.write_waits(connection, changed)
    return {wait.run_id for wait in after if not wait.looked}
