"""The expander: creates the members of mapped steps, while earlier ones run already.

A mapped step that is ready is a row with a cursor. One transaction finds out what its members are: it stores their list
in chunks and creates the join that counts them. Each further transaction creates up to 1,000 members and moves the
cursor, as long as fewer than `max_parallel`, and at most 20,000, are alive. Without `max_parallel` it waits until there
is room for 1,000. A process that is killed in between has created nothing that the cursor does not count. The next one,
of any server, continues there.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import msgspec

from mainspring.domain.transitions import StoredState
from mainspring.domain.worker_state import WORKER_LABEL, WorkerState
from mainspring.domain.workflows.definition import StepDefinition
from mainspring.domain.workflows.flow import FanoutState, FlowState, is_of_map, map_join, prefix_of, run_in
from mainspring.domain.workflows.references import Unresolved
from mainspring.domain.workflows.rules import Counts
from mainspring.kernel.logs import get_logger
from mainspring.operations.lifecycle.dispatch import RUNS_CREATED, release, runs_ended
from mainspring.operations.lifecycle.effects import Effects, RunChanges, apply_changes
from mainspring.operations.lifecycle.events import RunsCreated
from mainspring.operations.limits.effects import LimitEffects
from mainspring.operations.signals import FlowNews, Signals
from mainspring.operations.workflows.effects import FlowEffects
from mainspring.operations.workflows.graph_indexes import GraphIndexes
from mainspring.operations.workflows.members import CHUNK, Mapped, MemberRows, read_map, values_for
from mainspring.operations.workflows.repeats import next_repeats, read_repeats
from mainspring.store import fanouts, joins, runs, workers, workflows
from mainspring.store.deadlocks import despite_deadlocks
from mainspring.store.fanouts import Fanout
from mainspring.store.joins import NewJoin, Tally
from mainspring.store.lanes import LaneRegistry, lane_key
from mainspring.store.pool import NOT_NOW, Connection, Store
from mainspring.store.runs import Ending, LockedRun
from mainspring.store.workflows import Flow

log = get_logger("expander")

ALIVE = 20_000  # members of a step that are alive at once: more would make the tables grow
_PARTS = 20  # of `ALIVE`: members are created when there is room for one part
_LOOKED_AT = 1000  # mapped steps per round
_CHUNKS = 50  # of a list, in one statement
_SLICE = 500  # members that are skipped in one transaction
_UNSTARTED = (StoredState.QUEUED, StoredState.HELD)
_TOO_MANY = "too many members failed"
_WORKER_GONE = "its worker is gone"


class FanoutExpander:
    name = "fanout_expander"
    interval = 1.0

    def __init__(
        self, store: Store, lanes: LaneRegistry, signals: Signals, graph_indexes: GraphIndexes, alive: int = ALIVE
    ) -> None:
        self._store = store
        self._lanes = lanes
        self._signals = signals
        self._graph_indexes = graph_indexes
        self._alive = alive
        self._after = fanouts.FIRST
        self._one = asyncio.Lock()  # this process does not wait for itself at a row
        self._wanted: set[UUID] = set()
        self._joins: set[int] = set()
        self._expanding: asyncio.Task[None] | None = None
        signals.flows.subscribe(self._on_news)

    async def run_once(self) -> int:
        """Expand every mapped step that may have members to create. Returns how many were created."""
        async with self._store.reads.acquire() as connection:
            found = await fanouts.at_work(connection, self._after, _LOOKED_AT)
        self._after = found[-1] if len(found) == _LOOKED_AT else fanouts.FIRST
        return sum([await self.work(run_id) for run_id in found])

    async def work(self, run_id: UUID) -> int:
        """Create members of a mapped step until there is no room, or no more of them. Returns how many."""
        created = 0
        async with self._one:
            while number := await despite_deadlocks(partial(self._step, run_id)):
                created += number
        return created

    async def _step(self, run_id: UUID) -> int:
        """One transaction. Returns how many members were created; 1 if it has begun."""
        async with self._store.reads.acquire() as connection:
            fanout = await fanouts.get(connection, run_id)
            if fanout is None or fanout.state == FanoutState.CLOSED:
                return 0
            flow = await workflows.get(connection, fanout.flow_id)
            if flow is None or flow.state != FlowState.RUNNING:
                return 0
            graph_index = await self._graph_indexes.of_flow(connection, flow)
            step = graph_index.definition.steps[fanout.step]
            if fanout.state == FanoutState.READY:
                return await self._begin(connection, flow, fanout, step)
            if fanout.targets is None and self._waits(fanout, await fanouts.counted(connection, fanout)):
                return 0
        effects = Effects(waiting_locked=True)
        kept = fanout.step in graph_index.kept
        async with self._store.hot.acquire() as connection, connection.transaction():
            created, too_many = await self._expand(connection, fanout, step, effects, kept=kept)
            await release(connection, effects)
        effects.publish(self._signals)
        if too_many:
            await self._skip_unstarted(fanout)
        if fanout.targets is not None:
            await self._give_up_lost(fanout)
        return created

    async def _begin(self, reading: Connection, flow: Flow, fanout: Fanout, step: StepDefinition) -> int:
        reason, mapped = None, Mapped(0)
        try:
            again = await read_repeats(reading, flow, step, fanout)
            mapped = await read_map(reading, flow, step, fanout.run_id) if again is None else again
        except Unresolved as error:
            reason = str(error)
        effects = Effects(waiting_locked=True)
        async with self._store.hot.acquire() as connection, connection.transaction():
            locked = await workflows.lock(connection, flow.flow_id)
            current = await fanouts.lock(connection, fanout.run_id)
            if locked is None or locked.state != FlowState.RUNNING or current is None or current != fanout:
                return 0
            if reason is None:
                await self._known(connection, locked, fanout, step, mapped, effects)
            else:
                await self._fail(connection, locked, fanout, reason, effects)
        effects.publish(self._signals)
        return 1

    async def _known(
        self, connection: Connection, flow: Flow, fanout: Fanout, step: StepDefinition, mapped: Mapped, effects: Effects
    ) -> None:
        """Store what the members are."""
        assert step.map is not None
        numbers = await workflows.take_numbers(connection, flow.flow_id, mapped.own)
        assert numbers is not None  # it is locked as running
        join_id = map_join(flow.block, numbers[1])
        await joins.insert(connection, [NewJoin(join_id, mapped.total, ok=mapped.total - mapped.own)])
        chunks = [(chunk.number, chunk.items, chunk.position) for chunk in mapped.chunks]
        for first in range(0, len(chunks), _CHUNKS):
            await fanouts.insert_items(connection, fanout.run_id, chunks[first : first + _CHUNKS])
        begun = await fanouts.begin(
            connection,
            fanout.run_id,
            join_id=join_id,
            total=mapped.total,
            first_number=numbers[0],
            at_a_time=step.map.max_parallel,
            failures=step.map.max_failures,
            targets=mapped.targets,
            origin=mapped.origin,
            repeats=mapped.repeats,
        )
        if not begun:
            raise RuntimeError(f"mapped step {fanout.run_id} changed although it is locked")
        if not mapped.own:  # its join is decided from the beginning
            await joins.mark(connection, {join_id: Tally()})
            effects.of(FlowEffects).marked_joins.add(join_id)

    async def _fail(self, connection: Connection, flow: Flow, fanout: Fanout, reason: str, effects: Effects) -> None:
        row = await runs.lock_run(connection, flow.tenant_id, fanout.run_id)
        await fanouts.close(connection, [fanout.run_id])
        if row is not None:
            await _end(connection, [row], StoredState.FAILED, reason, effects)

    async def _expand(
        self, connection: Connection, fanout: Fanout, step: StepDefinition, effects: Effects, *, kept: bool
    ) -> tuple[int, bool]:
        """Create members. Returns how many, and whether too many of them have failed."""
        flow = await workflows.lock(connection, fanout.flow_id)
        current = await fanouts.lock(connection, fanout.run_id)
        if flow is None or flow.state != FlowState.RUNNING or current is None or current != fanout:
            return 0, False
        assert fanout.total is not None and fanout.join_id is not None
        counts = await fanouts.counted(connection, fanout)
        if _too_many_failed(fanout, counts):
            left = fanout.own - fanout.expanded
            await joins.mark(connection, {fanout.join_id: Tally(skipped=left)})
            effects.of(FlowEffects).marked_joins.add(fanout.join_id)
            await self._advanced(connection, fanout, fanout.expanded, close=True)
            return 0, True
        if self._waits(fanout, counts):
            return 0, False
        number = min(self._room(fanout, counts), _next_part(fanout))
        again = None
        if fanout.repeats is not None:
            again = (await next_repeats(connection, fanout))[:number]
            number = len(again)
        lanes = await self._lanes_of(connection, flow, fanout, step)
        members = MemberRows(flow, fanout, step, lanes, kept=kept)
        await self._create(connection, flow, fanout, step, members, number, effects, again)
        expanded = fanout.expanded + number
        close = expanded == fanout.own and fanout.failures is None and fanout.targets is None
        await self._advanced(connection, fanout, expanded, close=close)
        if members.failed:
            await _end_unresolved(connection, members.failed, effects)
        return number, False

    async def _create(
        self,
        connection: Connection,
        flow: Flow,
        fanout: Fanout,
        step: StepDefinition,
        members: MemberRows,
        number: int,
        effects: Effects,
        again: list[tuple[int, Any]] | None,
    ) -> None:
        """Create so many members. Their list and the results of other steps are read only if their payloads need it.
        `again`: indexes and items of those that run again."""
        items: Sequence[Any] = range(number)
        indexes = None if again is None else [index for index, _ in again]
        values = None
        if step.refers:
            new = again is None
            items = await self._items(connection, fanout, step, number) if new else [item for _, item in again or ()]
            values = await values_for(connection, flow, fanout.run_id)
        if members.alike:
            together = members.together(fanout.expanded, items, values, indexes)
            if await workflows.create_members(connection, together) != number:
                raise RuntimeError(f"not all members of {fanout.run_id} were created")
            effects.ready[together.lane_id] += number
            await RUNS_CREATED.happened(connection, [RunsCreated({together.lane_id: number})], effects)
            return
        made = await workflows.create_steps(connection, members.rows(fanout.expanded, items, values, indexes))
        effects.ready.update(made.lanes)
        await RUNS_CREATED.happened(connection, [RunsCreated(Counter(made.lanes), made.lines)], effects)

    def _room(self, fanout: Fanout, counts: Counts) -> int:
        """How many more members may be alive."""
        return min(fanout.at_a_time or self._alive, self._alive) - (fanout.earlier + fanout.expanded - counts.ended)

    def _waits(self, fanout: Fanout, counts: Counts) -> bool:
        """Whether nothing is to be done until more members have ended. Few large transactions create members faster
        than many small ones."""
        if _too_many_failed(fanout, counts):
            return False
        least = 1 if fanout.at_a_time else max(1, min(_next_part(fanout), self._alive // _PARTS))
        return self._room(fanout, counts) < least or not _next_part(fanout)

    async def _advanced(self, connection: Connection, fanout: Fanout, expanded: int, *, close: bool) -> None:
        if not await fanouts.advance(connection, fanout, expanded, close=close):
            raise RuntimeError(f"mapped step {fanout.run_id} changed although it is locked")

    async def _items(self, connection: Connection, fanout: Fanout, step: StepDefinition, number: int) -> list[Any]:
        assert step.map is not None
        first = fanout.expanded
        if step.map.range is not None:
            start, _, by = step.map.range
            return [start + by * index for index in range(first, first + number)]
        if fanout.targets is not None:
            return list(fanout.targets[first : first + number])
        text = await fanouts.items(connection, fanout.run_id, first // CHUNK)
        items: list[Any] = msgspec.json.decode(text or "[]")
        return items[first % CHUNK : first % CHUNK + number]

    async def _lanes_of(self, connection: Connection, flow: Flow, fanout: Fanout, step: StepDefinition) -> list[int]:
        """The lane of all members, or those of a broadcast: each is for one worker."""
        job = step.job()
        if fanout.targets is None:
            key = lane_key(flow.tenant_id, job)
            return [(await self._lanes.intern(connection, [key]))[key]]
        labels = [{**(step.required_labels or {}), WORKER_LABEL: target} for target in fanout.targets]
        keys = [lane_key(flow.tenant_id, msgspec.structs.replace(job, required_labels=one)) for one in labels]
        known = await self._lanes.intern(connection, keys)
        return [known[key] for key in keys]

    async def _skip_unstarted(self, fanout: Fanout) -> None:
        """Members that have not started are SKIPPED."""
        await self._end_members(fanout, None, StoredState.SKIPPED, _TOO_MANY)

    async def _give_up_lost(self, fanout: Fanout) -> None:
        """Members of a broadcast whose workers are gone end."""
        targets = fanout.targets or []
        async with self._store.reads.acquire() as connection:
            states = await workers.states(connection, [UUID(target) for target in targets])
        lost = {
            run_in(prefix_of(fanout.run_id), (fanout.first_number or 0) + index)
            for index, target in enumerate(targets)
            if states.get(UUID(target)) != WorkerState.LIVE
        }
        if lost:
            await self._end_members(fanout, lost, StoredState.FAILED, _WORKER_GONE)

    async def _end_members(
        self, fanout: Fanout, chosen: Collection[UUID] | None, state: StoredState, reason: str
    ) -> None:
        prefix, first = prefix_of(fanout.run_id), fanout.first_number or 0
        begin, last = run_in(prefix, first), run_in(prefix, first + max(fanout.own, 1) - 1)
        while True:
            effects = Effects(waiting_locked=True)
            async with self._store.change() as connection:
                found = await workflows.lock_left(connection, begin, last, _UNSTARTED, _SLICE)
                ending = [run for run in found if chosen is None or run.run_id in chosen]
                await _end(connection, ending, state, reason, effects)
                await release(connection, effects)
            effects.publish(self._signals)
            if len(found) < _SLICE:
                return
            begin = UUID(int=found[-1].run_id.int + 1)

    def _on_news(self, news: FlowNews) -> None:
        self._wanted.update(news.fanouts)
        self._joins.update(news.maps)
        self._joins.update(join_id for join_id in news.marked_joins if is_of_map(join_id))
        if (self._wanted or self._joins) and (self._expanding is None or self._expanding.done()):
            self._expanding = asyncio.create_task(self._answer())

    async def _answer(self) -> None:
        try:
            while self._wanted or self._joins:
                if self._joins:
                    fed, self._joins = list(self._joins), set()
                    async with self._store.reads.acquire() as connection:
                        self._wanted.update(await fanouts.of_joins(connection, fed))
                while self._wanted:
                    await self.work(self._wanted.pop())
        except NOT_NOW as error:
            log.warning("mapped steps could not be continued; the next round does it", error=repr(error))


def _next_part(fanout: Fanout) -> int:
    """How many members the next transaction creates at most: to the end of a chunk of the list."""
    return min(CHUNK - fanout.expanded % CHUNK, fanout.own - fanout.expanded)


def _too_many_failed(fanout: Fanout, counts: Counts) -> bool:
    return fanout.failures is not None and counts.bad > fanout.failures


async def _end(
    connection: Connection, found: list[LockedRun], state: StoredState, reason: str, effects: Effects
) -> None:
    endings = [Ending(run.run_id, run.fence, int(state), reason, None, run.state, attempt=run.attempt) for run in found]
    await apply_changes(connection, RunChanges(endings), effects)
    effects.of(LimitEffects).wake(run.held_key for run in found if run.held_key is not None)
    await runs_ended(connection, effects)


async def _end_unresolved(connection: Connection, failed: dict[UUID, str], effects: Effects) -> None:
    """Members whose payloads cannot be made. They were created as QUEUED in this transaction."""
    endings = [
        Ending(run_id, 0, int(StoredState.FAILED), reason, None, int(StoredState.QUEUED))
        for run_id, reason in failed.items()
    ]
    await apply_changes(connection, RunChanges(endings), effects)
    await runs_ended(connection, effects)
