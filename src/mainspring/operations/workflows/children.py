"""The child runner: starts the workflow runs that steps wait for, their children, and ends the steps as these have.

What is to be done is a row of `child_runs`. A child is created in the transaction that notes it in the row of its step,
under the lock of the step's run: each run of a step has one child, whatever is killed. Who ends a child changes the row
in the same transaction; the step ends in another one, which locks its run as each end of a wait does. A step that ends
otherwise leaves its child to the stopper.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from uuid import UUID

import asyncpg
import msgspec

from mainspring.domain.errors import InvalidInput, MainspringError
from mainspring.domain.intake.rerun import with_payload
from mainspring.domain.intake.workflows import parameters_as_payload
from mainspring.domain.job import Overlap, stored_spec
from mainspring.domain.limits import NotAKey
from mainspring.domain.transitions import StoredJobStatus, StoredState
from mainspring.domain.workflows.children import MOST_LEVELS, PARENT_TRIGGER, ChildState
from mainspring.domain.workflows.flow import WORKFLOW_TASK, number_of, prefix_of, run_in
from mainspring.domain.workflows.waits import WaitKind
from mainspring.kernel.config import MAX_RESULT_BYTES
from mainspring.kernel.ids import uuid7
from mainspring.kernel.logs import about_run, get_logger
from mainspring.operations.lifecycle.dispatch import release, runs_ended
from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.lifecycle.fire import FireEffects, cancel_earlier, run_now
from mainspring.operations.lookup import load_lane
from mainspring.operations.signals import Signals
from mainspring.operations.waits.ending import WaitEnd, end_waits
from mainspring.operations.workflows.calls import may_run
from mainspring.operations.workflows.graph_indexes import GraphIndexes
from mainspring.store import child_runs, history, jobs, waits, workflows
from mainspring.store.child_runs import ChildRun
from mainspring.store.deadlocks import despite_deadlocks
from mainspring.store.history import EndedRun
from mainspring.store.jobs import LockedJob
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import AWAY, NOT_NOW, Connection, Store
from mainspring.store.waits import LockedWait

log = get_logger("child_runner")

_BATCH = 200
_ROUNDS_TO_LOOK = 60
_MOST_STEPS = 100  # whose results are passed on
_MOST_BYTES = MAX_RESULT_BYTES - 4096  # of these results, as the result of the step has more
_encode = msgspec.json.Encoder().encode


class ChildRunner:
    name = "child_runner"
    interval = 1.0

    def __init__(self, store: Store, lanes: LaneRegistry, signals: Signals, graph_indexes: GraphIndexes) -> None:
        self._store = store
        self._lanes = lanes
        self._signals = signals
        self._graph_indexes = graph_indexes
        self._rounds = 0
        self._wanted = False
        self._working: asyncio.Task[None] | None = None
        signals.wakes.subscribe(self._on_wake)

    async def run_once(self) -> int:
        """Return how many children were started, and how many steps have ended."""
        if self._rounds % _ROUNDS_TO_LOOK == 0:
            async with self._store.change() as connection:
                await child_runs.find_lost(connection, _BATCH)
        self._rounds += 1
        return await self._pass()

    def _on_wake(self, seconds: float) -> None:
        if seconds > 0:
            return
        self._wanted = True
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._answer())

    async def close(self) -> None:
        if self._working is not None:
            self._working.cancel()
            await asyncio.gather(self._working, return_exceptions=True)

    async def _answer(self) -> None:
        try:
            while self._wanted:
                self._wanted = False
                await self._pass()
        except NOT_NOW as error:
            log.warning("workflows of steps could not be run; the next round does it", error=repr(error))

    async def _pass(self) -> int:
        started = await self._each(ChildState.TO_START, self._start)
        return started + await self._each(ChildState.ENDED, self._end)

    async def _each(self, state: ChildState, work: Callable[[ChildRun], Awaitable[bool]]) -> int:
        done, after = 0, child_runs.FIRST
        while True:
            async with self._store.reads.acquire() as connection:
                found = await child_runs.to_do(connection, state, after, _BATCH)
            for one in found:
                try:
                    done += await despite_deadlocks(partial(work, one))
                except Exception as error:  # others go on
                    if isinstance(error, AWAY) and not isinstance(error, asyncpg.QueryCanceledError):
                        raise
                    about = about_run(one.tenant_id, one.job_id, one.run_id, 0)
                    log.error("the workflow of a step cannot be run now", **about, error=repr(error))
            if len(found) < _BATCH:
                return done
            after = found[-1].run_id

    async def _start(self, one: ChildRun) -> bool:
        """Start the child of a step. Returns False if another process has."""
        fired: Effects = FireEffects()
        async with self._store.change() as connection:
            job = await jobs.lock(connection, one.tenant_id, one.workflow)
            locked = await self._locked(connection, one, ChildState.TO_START)
            if locked is None:
                return False
            try:
                new = await self._read(connection, one, locked, job)
            except (MainspringError, NotAKey) as error:
                reason = f"the workflow {one.workflow!r} cannot run: {error}"
                end = WaitEnd(locked.run_id, locked.fence, locked.attempt, StoredState.FAILED, None, reason)
                fired = await end_waits(connection, [end])
            else:
                fired = await _create(connection, one, new)
        if isinstance(fired, FireEffects):
            self._signals.ready.publish(fired.created)
        fired.publish(self._signals)
        return True

    async def _read(
        self, connection: Connection, one: ChildRun, locked: LockedWait, job: LockedJob | None
    ) -> _NewChild:
        """Raises MainspringError if there can be no child."""
        flow = await workflows.of_run(connection, one.tenant_id, prefix_of(one.run_id), one.run_id)
        if job is None or job.status == StoredJobStatus.CANCELLED:
            raise InvalidInput("there is no such workflow")
        if flow is None:
            raise InvalidInput("its workflow run is gone")
        definition = jobs.definition_of(job, await load_lane(self._lanes, connection, job.lane_id))
        if definition.task != WORKFLOW_TASK:
            raise InvalidInput("it is a job, and no workflow")
        key = flow.job_id, flow.generation, flow.version
        if not may_run(await child_runs.calls_of(connection, one.tenant_id, key), job.created_by):
            raise InvalidInput("it was created by another token than the workflow that runs it")
        above = await child_runs.callers_of(connection, flow.flow_id, MOST_LEVELS)
        if one.workflow in above:
            raise InvalidInput("it runs already, further up: " + " in ".join(map(repr, above)))
        if len(above) >= MOST_LEVELS:
            raise InvalidInput(f"workflows are nested in more than {MOST_LEVELS} levels")
        child = uuid7()
        given = parameters_as_payload(locked.wait.details)
        if memoryview(given):
            definition = with_payload(definition, given, job.now)
        spec = msgspec.structs.replace(definition.spec, repeat=str(child))  # a key of its own
        whole = msgspec.structs.replace(definition, spec=spec)
        trigger = f"{PARENT_TRIGGER}{flow.flow_id}:{number_of(one.run_id)}"
        return _NewChild(child, job, trigger, definition.payload, stored_spec(whole, job.job_id))

    async def _end(self, one: ChildRun) -> bool:
        """End a step as its child has ended. Returns False if another process has."""
        async with self._store.change() as connection:
            locked = await self._locked(connection, one, ChildState.ENDED)
            if locked is None:
                return False
            effects = await end_waits(connection, [await self._wait_end(connection, one, locked)])
        effects.publish(self._signals)
        return True

    async def _locked(self, connection: Connection, one: ChildRun, state: ChildState) -> LockedWait | None:
        """The step's run, locked. None if there is nothing to do any more."""
        locked = await waits.lock(connection, one.tenant_id, one.run_id, WaitKind.WORKFLOW)
        if locked is None:
            await child_runs.close_gone(connection, [one.run_id])
            return None
        return None if await child_runs.lock(connection, one.run_id, state) is None else locked

    async def _wait_end(self, connection: Connection, one: ChildRun, locked: LockedWait) -> WaitEnd:
        assert one.child is not None
        end = partial(WaitEnd, locked.run_id, locked.fence, locked.attempt)
        ended = await history.ended_run(connection, one.tenant_id, one.child)
        named = f"run {one.child} of the workflow {one.workflow!r}"
        if ended is None:
            return end(StoredState.FAILED, None, f"{named} is not in the history any more")
        if ended.state == StoredState.SUCCESS:
            return end(StoredState.SUCCESS, await self._result(connection, one.child, ended))
        state = StoredState.CANCELLED if ended.state == StoredState.CANCELLED else StoredState.FAILED
        words = StoredState(ended.state).name
        return end(state, None, f"{named} ended {words}" + (f": {ended.reason}" if ended.reason else ""))

    async def _result(self, connection: Connection, child: UUID, ended: EndedRun) -> str:
        """The result of a step: its child, and the results of the last steps of that by their names."""
        flow = await workflows.get(connection, child)
        results: dict[str, msgspec.Raw] = {}
        if flow is not None:
            definition = (await self._graph_indexes.of_flow(connection, flow)).definition
            names = {
                run_in(flow.prefix, place): definition.steps[place].name for place in definition.last[:_MOST_STEPS]
            }
            found = await child_runs.results(connection, list(names), flow.started_at)
            results = {name: msgspec.Raw((found.get(run_id) or "null").encode()) for run_id, name in names.items()}
        text = _encode({"run_id": str(child), "results": results})
        if len(text) > _MOST_BYTES:
            text = _encode({"run_id": str(child), "results": None, "results_left_out": True})
        return text.decode()


class _NewChild(msgspec.Struct, frozen=True):
    """A run to be created. job: its workflow, which is locked."""

    run_id: UUID
    job: LockedJob
    trigger: str
    payload: str | None
    spec: str | None


async def _create(connection: Connection, one: ChildRun, new: _NewChild) -> FireEffects:
    job, tenant = new.job, one.tenant_id
    changed = new.payload, new.spec
    fired = await run_now(connection, tenant, job.job_id, new.run_id, new.trigger, changed, job.created_by)
    assert fired is not None  # the job is locked and not cancelled
    await child_runs.follow(connection, new.run_id)  # it has ended if it was skipped
    if job.overlap == Overlap.CANCEL_PREVIOUS:
        await cancel_earlier(connection, tenant, job.job_id, [new.run_id], fired)
    if not await child_runs.started(connection, one.run_id, new.run_id):
        raise RuntimeError(f"step run {one.run_id} has a child although it is locked")
    await runs_ended(connection, fired)
    await release(connection, fired)
    return fired
