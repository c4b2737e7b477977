"""The stopper: cancels what is left of workflow runs that were cancelled, replaced, or timed out.

That the workflow run is being stopped is committed first. Then its step runs are walked in slices, those that wait
first: so none of them can start when another one ends. Those that run are told to stop. The workflow run ends in the
transaction that ends the last of them, or here if none is left. If a process is killed in between, the next round of
any server continues.
"""

from __future__ import annotations

import asyncio
from functools import partial
from uuid import UUID

from mainspring.domain.transitions import StoredState
from mainspring.domain.workflows.flow import BEING_STOPPED, CANCELLED_WHILE_IT_RAN, FlowState, last_in
from mainspring.kernel.logs import get_logger
from mainspring.operations.lifecycle.cancel import cancel
from mainspring.operations.lifecycle.dispatch import release, runs_ended
from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.signals import FlowNews, Signals
from mainspring.operations.workflows.effects import FlowEffects
from mainspring.operations.workflows.rule_engine import end_stopped
from mainspring.store import child_runs, fanouts, joins, runs, workflows
from mainspring.store.child_runs import ChildRun
from mainspring.store.deadlocks import despite_deadlocks
from mainspring.store.pool import NOT_NOW, Store
from mainspring.store.workflows import Flow

log = get_logger("stopper")

_SLICE = 500  # runs per transaction
_LOOKED_AT = 100  # workflow runs per round
_WAITING = (StoredState.WAITING,)
_OTHERS = (StoredState.QUEUED, StoredState.HELD, StoredState.RUNNING)
_LAST = UUID(int=(1 << 128) - 1)
_PARENT_ENDED = "the step that has started it has ended"
_STOPPED = "its workflow run has ended"


class FlowStopper:
    name = "flow_stopper"
    interval = 1.0

    def __init__(self, store: Store, signals: Signals, *, listens: bool = True) -> None:
        self._store = store
        self._signals = signals
        self._after = dict.fromkeys(BEING_STOPPED, workflows.FIRST)
        self._wanted: set[UUID] = set()
        self._stopping: asyncio.Task[None] | None = None
        if listens:
            signals.flows.subscribe(self._on_news)

    async def run_once(self) -> int:
        """Continue what a killed process left unfinished, and check whether the last run of a workflow run has
        ended."""
        looked_at = 0
        for state in BEING_STOPPED:
            async with self._store.reads.acquire() as connection:
                found = await workflows.in_state(connection, state, self._after[state], _LOOKED_AT)
            self._after[state] = found[-1] if len(found) == _LOOKED_AT else workflows.FIRST
            for flow_id in found:
                await self.stop(flow_id)
            looked_at += len(found)
        return looked_at + await self._stop_children(child_runs.FIRST, _LAST)

    async def stop(self, flow_id: UUID) -> None:
        """Cancel the step runs of a workflow run that is being stopped. When this returns, none of them can start any
        more."""
        async with self._store.reads.acquire() as connection:
            flow = await workflows.get(connection, flow_id)
        if flow is not None and flow.state in BEING_STOPPED:
            await self._walk(flow, _WAITING)
            await self._stop_children(flow.prefix, last_in(flow.prefix))
            async with self._store.change() as connection:
                await fanouts.close_of_flow(connection, flow_id)
            await self._walk(flow, _OTHERS)
            flow = await despite_deadlocks(partial(self._end, flow))
        if flow is not None and flow.state == FlowState.ENDED:
            await self._forget_joins(flow)

    async def _stop_children(self, first: UUID, last: UUID) -> int:
        """Cancel the workflow runs that these steps have started, and that are left although the steps have ended."""
        async with self._store.reads.acquire() as connection:
            found = await child_runs.to_cancel_in(connection, first, last, _SLICE)
        for one in found:
            flow_id = await despite_deadlocks(partial(self._cancel_child, one))
            if flow_id is not None:
                await self.stop(flow_id)
        return len(found)

    async def _cancel_child(self, one: ChildRun) -> UUID | None:
        """Returns the workflow run whose steps are to be cancelled."""
        assert one.child is not None
        async with self._store.change() as connection:
            row = await runs.lock_run(connection, one.tenant_id, one.child)
            if not await child_runs.cancelled(connection, one.run_id):
                return None
            effects = await cancel(connection, [] if row is None else [row], _PARENT_ENDED)
        effects.publish(self._signals)
        return None if row is None else one.child

    async def _end(self, flow: Flow) -> Flow | None:
        """End the workflow run, unless workers have been told to stop some of its steps."""
        effects = Effects(waiting_locked=True)
        async with self._store.change() as connection:
            await end_stopped(connection, [flow.prefix], effects)
            await runs_ended(connection, effects)
            await release(connection, effects)
            left = await workflows.lock(connection, flow.flow_id)
            if left is not None and left.state in BEING_STOPPED:
                if await workflows.without_runs(connection, [flow.prefix]):
                    await workflows.end(connection, flow.flow_id)
                left = await workflows.get(connection, flow.flow_id)
        effects.publish(self._signals)
        return left

    async def _walk(self, flow: Flow, states: tuple[StoredState, ...]) -> None:
        following: UUID | None = flow.prefix
        while following is not None:
            following = await despite_deadlocks(partial(self._slice, flow, following, states))

    async def _slice(self, flow: Flow, first: UUID, states: tuple[StoredState, ...]) -> UUID | None:
        """Cancel some runs. Returns where to go on."""
        async with self._store.change() as connection:
            found = await workflows.lock_left(connection, first, last_in(flow.prefix), states, _SLICE)
            effects = await cancel(connection, found, _reason(flow), of_stopped=True)
        effects.publish(self._signals)
        return UUID(int=found[-1].run_id.int + 1) if len(found) == _SLICE else None

    async def _forget_joins(self, flow: Flow) -> None:
        """Delete the joins of a workflow run that has ended: no run waits for them."""
        async with self._store.reads.acquire() as connection:
            while await joins.delete(connection, flow.block, _SLICE) == _SLICE:
                pass

    def _on_news(self, news: FlowNews) -> None:
        self._wanted.update(news.stopped)
        if self._wanted and (self._stopping is None or self._stopping.done()):
            self._stopping = asyncio.create_task(self._answer())

    async def _answer(self) -> None:
        try:
            while self._wanted:
                await self.stop(self._wanted.pop())
        except NOT_NOW as error:
            log.warning("workflow runs could not be stopped; the next round does it", error=repr(error))


class StopFinisher:
    """A cancel of workflow runs waits until none of their steps can start any more."""

    async def finish(self, effects: Effects, store: Store, signals: Signals, /) -> None:
        if FlowEffects in effects.parts and (stopped := effects.of(FlowEffects).stopped):
            stopper = FlowStopper(store, signals, listens=False)
            for flow_id in sorted(stopped):
                await stopper.stop(flow_id)


def _reason(flow: Flow) -> str | None:
    """Why its step runs end. None: each of them was cancelled as it was, like the workflow run."""
    return None if flow.stop_reason == CANCELLED_WHILE_IT_RAN else flow.stop_reason or _STOPPED
