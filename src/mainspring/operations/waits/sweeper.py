"""The sweeper ends waits whose time has come: sleeps that are over, waits with their event, and timeouts.

It also looks, once for each wait that has begun, for an event that came before it. The matcher of events finds those
that come after it. Both only let the wait be due. An event that is there counts, also if the timeout is over meanwhile.

Each process looks once a second, and at the time of the next wait if that is sooner. It reads an index from its
beginning: waits whose time is far away cost nothing.
"""

from __future__ import annotations

import asyncio

from mainspring.domain.event_payloads import event_as_json
from mainspring.domain.transitions import StoredState
from mainspring.domain.workflows.waits import FAIL, SKIP, WaitKind
from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock, Timer
from mainspring.kernel.config import MAX_RESULT_BYTES
from mainspring.kernel.logs import get_logger
from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.signals import Signals
from mainspring.operations.waits.ending import WaitEnd, end_waits
from mainspring.store import waits
from mainspring.store.deadlocks import despite_deadlocks
from mainspring.store.pool import NOT_NOW, Store
from mainspring.store.waits import DueWait

log = get_logger("wait_sweeper")

_BATCH = 500
_SOON = 1.0  # seconds: what comes later is found by the next round
_MARGIN = 0.005  # seconds after the time of a wait
_LEAST = 0.05  # seconds between two looks: a run that is locked may stay so
TIMED_OUT = '{"timed_out":true}'  # the result of a wait that goes on after its timeout
_ROUNDS_TO_FORGET = 60
_MOST_BYTES = MAX_RESULT_BYTES - 4096  # of the payload of an event, as the result has its name and key, too


class WaitSweeper:
    name = "wait_sweeper"
    interval = 1.0

    def __init__(self, store: Store, signals: Signals, clock: LoopClock = SYSTEM_CLOCK) -> None:
        self._store = store
        self._signals = signals
        self._clock = clock
        self._timer: Timer | None = None
        self._at = 0.0  # of the timer
        self._sweeping: asyncio.Task[None] | None = None
        self._rounds = 0
        signals.wakes.subscribe(self.wake_in)

    async def run_once(self) -> int:
        """End what is due. Returns how many waits ended."""
        ended = 0
        while await despite_deadlocks(self._look) == _BATCH:
            pass
        while batch := await despite_deadlocks(self._end_some):
            ended += batch
            if batch < _BATCH:
                break
        async with self._store.reads.acquire() as connection:
            following = await waits.next_wake(connection)
            if self._rounds % _ROUNDS_TO_FORGET == 0:
                await waits.forget(connection, _BATCH)
            self._rounds += 1
        if following is not None and following > -_LEAST:  # a later one is locked: it is left to the next round
            self.wake_in(following)
        return ended

    async def _look(self) -> int:
        async with self._store.change() as connection:
            return await waits.look(connection, _BATCH)

    async def _end_some(self) -> int:
        async with self._store.change() as connection:
            due = await waits.due(connection, _BATCH, _MOST_BYTES)
            effects = await end_waits(connection, [_end(one) for one in due]) if due else Effects()
        effects.publish(self._signals)
        return len(due)

    def wake_in(self, seconds: float) -> None:
        """Look again at the time of a wait, if it comes soon."""
        if seconds > _SOON:
            return
        wait = max(seconds + _MARGIN, _LEAST)
        at = self._clock.monotonic() + wait
        if self._timer is not None:
            if self._at <= at:
                return
            self._timer.cancel()
        self._at = at
        self._timer = self._clock.call_later(wait, self._wake)

    def _wake(self) -> None:
        self._timer = None
        if self._sweeping is None or self._sweeping.done():
            self._sweeping = asyncio.create_task(self._answer())

    async def _answer(self) -> None:
        try:
            await self.run_once()
        except NOT_NOW as error:
            log.warning("waits could not be ended; the next round does it", error=repr(error))


def _end(due: DueWait) -> WaitEnd:
    wait, state, result = due.wait, StoredState.SUCCESS, None
    if (event := due.event) is not None:
        more = ',"payload_left_out":true' if due.left_out else ""
        result = f'{{"event":{event_as_json(event)[:-1]}{more}}}}}'
    elif due.callback_text is not None:
        result = due.callback_text
    elif wait.kind != WaitKind.SLEEP:
        state = {FAIL: StoredState.FAILED, SKIP: StoredState.SKIPPED}.get(wait.on_timeout, StoredState.SUCCESS)
        result = TIMED_OUT if state is StoredState.SUCCESS else None
    reason = None if state is StoredState.SUCCESS else wait.reason_of_timeout
    return WaitEnd(due.run_id, due.fence, due.attempt, state, result, reason)
