"""The event matcher hands each event that was emitted to the handlers of `EVENTS_EMITTED`, once and in order.

A step is one transaction: it takes the oldest events that are not matched, lets the handlers deal with them, and marks
them. A process that is killed in a step has changed nothing. One process at a time matches, so events are handed out in
the order of their numbers, except for those whose transaction committed late. It runs after each request that stored
events, and each second for those of other processes and of `mainspring.emit`.
"""

from __future__ import annotations

import asyncio

from mainspring.kernel.logs import get_logger
from mainspring.operations.lifecycle.dispatch import EVENTS_EMITTED, finish, release, runs_ended
from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.lifecycle.events import EventEmitted
from mainspring.operations.signals import Signals
from mainspring.store import events
from mainspring.store.deadlocks import despite_deadlocks
from mainspring.store.pool import NOT_NOW, Store

log = get_logger("event_matcher")

_AT_ONCE = 500  # fewer after a step that failed: perhaps they start too much for one transaction


class EventMatcher:
    name = "event_matcher"
    interval = 1.0

    def __init__(self, store: Store, signals: Signals) -> None:
        self._store = store
        self._signals = signals
        self._at_once = _AT_ONCE
        self._wanted = False
        self._matching: asyncio.Task[None] | None = None
        signals.emitted.subscribe(self.wake)

    async def run_once(self) -> int:
        """Return how many events were matched."""
        total = 0
        while True:
            count = self._at_once
            try:
                matched = await despite_deadlocks(self._step)
            except Exception:
                self._at_once = max(1, count // 2)
                raise
            self._at_once = min(_AT_ONCE, count * 2)
            total += matched
            if matched < count:
                return total

    def wake(self) -> None:
        """Match soon."""
        self._wanted = True
        if self._matching is None or self._matching.done():
            self._matching = asyncio.create_task(self._answer())

    async def close(self) -> None:
        if self._matching is not None:
            self._matching.cancel()
            await asyncio.gather(self._matching, return_exceptions=True)

    async def _answer(self) -> None:
        try:
            while self._wanted:
                self._wanted = False
                await self.run_once()
        except NOT_NOW as error:
            log.warning("events could not be matched; the next round does it", error=repr(error))

    async def _step(self) -> int:
        effects = Effects()
        async with self._store.change() as connection:
            if not await events.is_only_matcher(connection):
                return 0
            found = await events.to_match(
                connection, self._at_once
            )  # a statement of its own: it sees what was committed
            if not found:
                return 0
            emitted = [
                EventEmitted(row.tenant_id, row.event_id, row.seq, row.name, row.key, row.at, row.payload_text)
                for row in found
            ]
            await EVENTS_EMITTED.happened(connection, emitted, effects)
            await runs_ended(connection, effects)
            await release(connection, effects)
            await events.mark_matched(connection, found)
        await finish(effects, self._store, self._signals)
        return len(found)
