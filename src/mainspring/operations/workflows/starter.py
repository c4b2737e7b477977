"""The starter: creates the step runs of workflow runs.

A QUEUED workflow run waits in a lane from which no worker takes. The starter of any server locks it, makes it WAITING
for the join of its steps, and creates joins and step runs, up to 1,000 rows in a transaction. The workflow run's row
counts what is created. If a process is killed in between, nothing is lost and nothing is repeated: the next one
continues.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from uuid import UUID

import msgspec

from mainspring.domain.errors import NotFound
from mainspring.domain.job import spec_from_text
from mainspring.domain.transitions import StoredState
from mainspring.domain.workflows.flow import WORKFLOW_TASK, FlowState, prefix_of
from mainspring.kernel.compute_thread import in_compute_thread
from mainspring.kernel.ids import uuid7_batch
from mainspring.kernel.logs import about_run, get_logger
from mainspring.operations.lifecycle.dispatch import RUNS_CREATED, release, runs_ended
from mainspring.operations.lifecycle.effects import Effects, RunChanges, apply_changes
from mainspring.operations.lifecycle.events import RunsCreated
from mainspring.operations.signals import FlowNews, Signals
from mainspring.operations.workflows.effects import FlowEffects
from mainspring.operations.workflows.graph_indexes import GraphIndexes, part_of
from mainspring.operations.workflows.graph_rows import GraphIndex, GraphPart, GraphRows
from mainspring.store import fanouts, joins, workflows
from mainspring.store.deadlocks import despite_deadlocks
from mainspring.store.joins import Tally, join_in
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import NOT_NOW, Connection, Store
from mainspring.store.runs import Ending
from mainspring.store.workflows import Flow, NewFlow, QueuedFlow

log = get_logger("starter")

ROWS = 1000  # joins and step runs that one transaction creates
_AT_ONCE = 100  # workflow runs that one transaction starts
_LOOKED_AT = 100  # workflow runs per round that a killed process left unfinished


class FlowStarter:
    name = "flow_starter"
    interval = 1.0

    def __init__(
        self, store: Store, lanes: LaneRegistry, signals: Signals, graph_indexes: GraphIndexes, rows: int = ROWS
    ) -> None:
        self._store = store
        self._lanes = lanes
        self._signals = signals
        self._graph_indexes = graph_indexes
        self._rows = rows
        self._woken = False
        self._last: tuple[int, GraphRows] | None = None
        self._starting: asyncio.Task[None] | None = None
        self._rerun: set[UUID] = set()
        signals.ready.subscribe(self._on_ready)
        signals.flows.subscribe(self._on_news)

    async def run_once(self) -> int:
        """Start what is QUEUED, and continue what a killed process left unfinished. Returns how many workflow runs were
        started."""
        await self._lanes.refresh()
        started = await self._start_queued()
        async with self._store.reads.acquire() as connection:
            left = await workflows.in_state(connection, FlowState.STARTING, workflows.FIRST, _LOOKED_AT)
        for flow_id in left:
            await self.continue_flow(flow_id)
        return started

    def _on_ready(self, created: Mapping[int, int]) -> None:
        lanes = [self._lanes.peek(lane_id) for lane_id in created]
        if not any(lane is not None and lane.task == WORKFLOW_TASK for lane in lanes):
            return
        self._woken = True
        self._wake()

    def _on_news(self, news: FlowNews) -> None:
        if news.rerun:
            self._rerun.update(news.rerun)
            self._wake()

    def _wake(self) -> None:
        if self._starting is None or self._starting.done():
            self._starting = asyncio.create_task(self._answer())

    async def _answer(self) -> None:
        try:
            while self._woken or self._rerun:
                while self._rerun:
                    await self.continue_flow(self._rerun.pop())
                if self._woken:
                    self._woken = False
                    await self._start_queued()
        except NOT_NOW as error:
            log.warning("workflow runs could not be started; the next round does it", error=repr(error))

    async def _start_queued(self) -> int:
        started = 0
        while lanes := self._lanes.of_any_tenant(WORKFLOW_TASK):
            batch = await despite_deadlocks(partial(self._start_some, lanes))
            started += batch.found
            for flow_id in batch.unfinished:
                await self.continue_flow(flow_id)
            if not batch.found:
                break
        return started

    async def _start_some(self, lanes: list[int]) -> _Batch:
        """Start some workflow runs in one transaction: small ones as a whole, a large one in part."""
        effects, batch = Effects(), _Batch()
        async with self._store.hot.acquire() as connection, connection.transaction():
            for run in await workflows.queued(connection, lanes, _AT_ONCE):
                graph_index = await self._graph_index(connection, run)
                if graph_index is None:
                    await self._refuse(connection, run, effects)
                elif batch.begin(run, graph_index, self._rows):
                    pass
                else:
                    break
                batch.found += 1
            if batch.flows:
                await self._begin(connection, batch)
                await self._create(connection, batch.rows(self._rows), effects)
        effects.publish(self._signals)
        return batch

    async def _graph_index(self, connection: Connection, run: QueuedFlow) -> GraphIndex | None:
        version = spec_from_text(run.spec_text).workflow
        if version is None:
            return None
        try:
            return await self._graph_indexes.get(connection, run.tenant_id, (run.job_id, run.generation, version))
        except NotFound:
            return None

    async def _refuse(self, connection: Connection, run: QueuedFlow, effects: Effects) -> None:
        log.error("workflow run has no definition", **about_run(run.tenant_id, run.job_id, run.run_id, 0))
        ending = Ending(
            run.run_id, run.fence, int(StoredState.FAILED), "it has no definition", None, int(StoredState.QUEUED)
        )
        await apply_changes(connection, RunChanges([ending]), effects)
        await runs_ended(connection, effects)
        await release(connection, effects)

    async def _begin(self, connection: Connection, batch: _Batch) -> None:
        blocks = await joins.new_blocks(connection, len(batch.flows))
        prefixes = [prefix_of(some_id) for some_id in uuid7_batch(len(batch.flows))]
        new: list[NewFlow] = []
        for (run, graph_index), block, prefix in zip(batch.flows, blocks, prefixes, strict=True):
            steps = len(graph_index.definition.steps)
            part = GraphPart(
                flow_id=run.run_id,
                tenant_id=run.tenant_id,
                workflow_id=run.job_id,
                generation=run.generation,
                scheduled_for=run.scheduled_for,
                block=block,
                prefix=prefix,
                numbers={place: place for place in range(steps)},
            )
            batch.graphs.append((run.run_id, await _graph(graph_index, part)))
            version = spec_from_text(run.spec_text).workflow or 0
            new.append(NewFlow(run.run_id, run.fence, version, block, prefix, steps))
        begun = await workflows.begin(connection, new, [join_in(block, 0) for block in blocks])
        if begun != len(new):
            raise RuntimeError("workflow runs changed although they are locked")

    async def continue_flow(self, flow_id: UUID) -> None:
        """Create what is left of a workflow run that was started."""
        while await despite_deadlocks(partial(self._continue, flow_id)):
            pass

    async def _continue(self, flow_id: UUID) -> bool:
        effects = Effects()
        async with self._store.hot.acquire() as connection, connection.transaction():
            flow = await workflows.lock(connection, flow_id)
            if flow is None or flow.state != FlowState.STARTING:
                return False
            graph = await self._graph_of(connection, flow)
            last = min(flow.made + self._rows, graph.total)
            await self._create(connection, [(flow_id, graph, flow.made, last)], effects)
        effects.publish(self._signals)
        return last < graph.total

    async def _graph_of(self, connection: Connection, flow: Flow) -> GraphRows:
        """The rows of a workflow run. Those of the last one are kept, because a large one has many parts."""
        if self._last is None or self._last[0] != flow.block:
            graph_index, part = await self._graph_indexes.of_flow(connection, flow), await part_of(connection, flow)
            self._last = flow.block, await _graph(graph_index, part)
        return self._last[1]

    async def _create(
        self, connection: Connection, rows: Sequence[tuple[UUID, GraphRows, int, int]], effects: Effects
    ) -> None:
        """Create the rows from and to these places of each workflow run."""
        places = [(graph, place) for _, graph, first, last in rows for place in graph.places(first, last)]
        lanes = await self._lanes.intern(connection, {graph.lane(place) for graph, place in places})
        if new := [join for _, graph, first, last in rows for join in graph.joins(first, last)]:
            await joins.insert(connection, new)
        if steps := [graph.step(place, lanes[graph.lane(place)]) for graph, place in places]:
            made = await workflows.create_steps(connection, steps)
            effects.ready.update(made.lanes)
            await RUNS_CREATED.happened(connection, [RunsCreated(Counter(made.lanes), made.lines)], effects)
        opened = [step.run_id for step, (graph, place) in zip(steps, places, strict=True) if graph.is_open(place)]
        if opened:
            effects.of(FlowEffects).fanouts.update(await fanouts.open_all(connection, opened))
        for flow_id, graph, first, last in rows:
            complete = last == graph.total
            if not await workflows.advance(connection, flow_id, first, last, complete=complete):
                raise RuntimeError(f"workflow run {flow_id} changed although it is locked")
            if complete and graph.wants_nothing:
                await joins.mark(connection, {graph.nothing: Tally()})
                effects.of(FlowEffects).marked_joins.add(graph.nothing)


async def _graph(graph_index: GraphIndex, part: GraphPart) -> GraphRows:
    return (
        GraphRows(graph_index, part)
        if len(part.numbers) <= ROWS
        else await in_compute_thread(GraphRows, graph_index, part)
    )


class _Batch(msgspec.Struct):
    """Workflow runs that one transaction starts."""

    found: int = 0
    size: int = 0
    flows: list[tuple[QueuedFlow, GraphIndex]] = []
    graphs: list[tuple[UUID, GraphRows]] = []
    unfinished: list[UUID] = []

    def begin(self, run: QueuedFlow, graph_index: GraphIndex, most: int) -> bool:
        """Add a workflow run, if there is room for its rows or it is the first one."""
        rows = 2 + len(graph_index.definition.joins) + len(graph_index.definition.steps)
        if self.flows and self.size + rows > most:
            return False
        self.flows.append((run, graph_index))
        self.size += rows
        return True

    def rows(self, most: int) -> list[tuple[UUID, GraphRows, int, int]]:
        self.unfinished = [flow_id for flow_id, graph in self.graphs if graph.total > most]
        return [(flow_id, graph, 0, min(graph.total, most)) for flow_id, graph in self.graphs]
