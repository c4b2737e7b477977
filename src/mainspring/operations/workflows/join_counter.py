"""The join counter counts the marks of joins, and starts or ends the runs that wait for them.

A mark is a row that counts ends for a join. A transaction that has written marks publishes a signal after its commit,
and the counter of the process counts them at once. Every process also polls each second, because a killed process may
have left marks. A join is locked while its marks are counted, so a second process finds none.

A container, such as a mapped step with many members, waits for the last of them. As long as its join is far from done,
its marks decide nothing, so they are counted together every 50 ms.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from functools import partial

from mainspring.domain.workflows.flow import ends_a_container
from mainspring.kernel.logs import get_logger
from mainspring.operations.lifecycle.dispatch import release, runs_ended
from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.signals import FlowNews, Signals
from mainspring.operations.workflows.effects import FlowEffects
from mainspring.operations.workflows.rule_engine import settle
from mainspring.store import joins
from mainspring.store.deadlocks import despite_deadlocks
from mainspring.store.joins import JoinCounts
from mainspring.store.pool import NOT_NOW, Store

log = get_logger("join_counter")

_TOGETHER = 50  # joins that one transaction locks
_PER_ROUND = 1000  # joins
_PAUSE = 0.005  # seconds in which marks of the same joins come together
_LATER = 0.05  # the same pause for joins that are far from done
_FAR = 64  # a join is far from done if more ends than this are left, and more than four times those counted last
_MOST_KNOWN = 10_000  # joins


class JoinCounter:
    name = "join_counter"
    interval = 1.0

    def __init__(self, store: Store, signals: Signals) -> None:
        self._store = store
        self._signals = signals
        self._after = joins.FIRST_JOIN
        self._wanted: set[int] = set()
        self._later: set[int] = set()
        self._far: dict[int, int] = {}  # joins that are far from done, and how many ends they have counted
        self._counting: asyncio.Task[None] | None = None
        signals.flows.subscribe(self._on_news)

    async def run_once(self) -> int:
        """Count the marks that exist, and those that this creates. Return how many joins were counted."""
        async with self._store.hot.acquire() as connection:
            found = await joins.marked(connection, self._after, _PER_ROUND)
        self._after = found[-1] if len(found) == _PER_ROUND else joins.FIRST_JOIN
        return await self.count(found)

    async def count(self, join_ids: Collection[int]) -> int:
        """Count the marks of these joins, and of the joins that get marks as a result."""
        counted_joins = 0
        waiting = set(join_ids)
        while waiting:
            now = sorted(waiting)[:_TOGETHER]
            waiting.difference_update(now)
            number, following = await despite_deadlocks(partial(self._count_marks, now))
            counted_joins += number
            waiting |= following
        return counted_joins

    async def _count_marks(self, join_ids: Sequence[int]) -> tuple[int, set[int]]:
        effects = Effects(waiting_locked=True)
        async with self._store.hot.acquire() as connection, connection.transaction():
            counted = await joins.count_marks(connection, join_ids)
            await settle(connection, counted, effects)
            await runs_ended(connection, effects)
            await release(connection, effects)
        flows = effects.of(FlowEffects)
        following, flows.marked_joins = flows.marked_joins, set()
        for join in counted:
            self._note(join)
        effects.publish(self._signals)
        return len(counted), following

    def _note(self, join: JoinCounts) -> None:
        """Remember whether the join is far from done, at the pace of its last ends."""
        ended = join.counts.ended
        fresh = ended - self._far.pop(join.join_id, 0)
        if ends_a_container(join.join_id) and join.total - ended > max(_FAR, 4 * fresh):
            if len(self._far) >= _MOST_KNOWN:
                self._far.clear()
            self._far[join.join_id] = ended

    def _on_news(self, news: FlowNews) -> None:
        for join_id in news.marked_joins:
            if join_id not in self._far:
                self._wanted.add(join_id)
                continue
            if not self._later:
                asyncio.get_running_loop().call_later(_LATER, self._count_later)
            self._later.add(join_id)
        self._wake()

    def _count_later(self) -> None:
        self._wanted |= self._later
        self._later = set()
        self._wake()

    def _wake(self) -> None:
        if self._wanted and (self._counting is None or self._counting.done()):
            self._counting = asyncio.create_task(self._answer())

    async def _answer(self) -> None:
        try:
            while self._wanted:
                wanted, self._wanted = self._wanted, set()
                await self.count(wanted)
                await asyncio.sleep(_PAUSE)
        except NOT_NOW as error:
            log.warning("joins could not be counted; the next round does it", error=repr(error))
