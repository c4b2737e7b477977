"""Reads workflow runs: one with its steps and edges, its steps page by page, the members of a map, and lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from mainspring.domain.errors import InvalidInput, MainspringError, NotFound
from mainspring.domain.job import spec_from_text
from mainspring.domain.state_names import named_states
from mainspring.domain.tags import workflow_run_tag
from mainspring.domain.transitions import SHOWN_SCHEDULED, RunState, StoredState, shown_of_listed
from mainspring.domain.worker_needs import WorkerNeeds, needs_of
from mainspring.domain.workflows.children import parent_of
from mainspring.domain.workflows.definition import StepDefinition, WorkflowDefinition
from mainspring.domain.workflows.flow import ALIVE, RERUN_TRIGGER, WORKFLOW_TASK, FlowState, number_of
from mainspring.domain.workflows.graph import SHOWN_PARENTS
from mainspring.domain.workflows.numbers import Numbers
from mainspring.kernel.ids import TenantId
from mainspring.operations.access.caller import Caller
from mainspring.operations.lookup import load_lane
from mainspring.operations.paging.cursors import bad_cursor, decode_cursor, encode_cursor
from mainspring.operations.paging.search import searching
from mainspring.operations.read.quota_hold import held_tenants, read_quota_hold, show_held, show_quota_holds
from mainspring.operations.read.runs import ONE_SNAPSHOT, RunReader
from mainspring.operations.read.views import brief_view, job_id_of
from mainspring.operations.signatures.offers import lacking_by_needs
from mainspring.operations.workflows.definitions import Definitions
from mainspring.operations.workflows.repeats import member_runs
from mainspring.store import child_runs, history, waits, workers, workflow_reads, workflow_versions, workflows
from mainspring.store.fired_jobs import BriefRun, brief_of
from mainspring.store.history import Run
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import AWAY, Connection, Store
from mainspring.store.waits import OpenWait
from mainspring.store.workflow_reads import KeptEnd, MapRow
from mainspring.store.workflow_versions import VersionKey
from mainspring.store.workflows import Flow
from mainspring.wire.runs import RunBrief
from mainspring.wire.workflows import (
    MapProgress,
    StepRunList,
    StepRunView,
    WorkflowRunBrief,
    WorkflowRunList,
    WorkflowRunView,
)

SHOWN_STEPS = 1000  # with the run itself
_LOOKED_AT = 5000  # steps of a page that is filtered by state
_AT_ONCE = 1000  # steps that one statement reads
_NO_PREFIX = UUID(int=0)
_TIMING_OUT = "timed out; waiting for its steps to end"


class StepQuery(msgspec.Struct, frozen=True):
    """The parameters of `GET /v1/workflow-runs/{run}/steps`."""

    statuses: Sequence[str] = ()
    name: str | None = None
    members: bool = False
    cursor: str | None = None
    limit: int = 50


_MOST_NEEDS = 1000


class FoundRun(msgspec.Struct, frozen=True):
    """A workflow run. run: the one that was fired. flow: None if it was not started. container: the run that stands for
    it now."""

    run: Run
    container: BriefRun
    definition: WorkflowDefinition
    version: int
    flow: Flow | None
    numbers: Numbers


class WorkflowRunReader:
    def __init__(self, store: Store, lanes: LaneRegistry, definitions: Definitions, run_reader: RunReader) -> None:
        self._store = store
        self._lanes = lanes
        self._definitions = definitions
        self._runs = run_reader

    async def run(self, caller: Caller, run_id: UUID) -> WorkflowRunView:
        """A workflow run with its steps. After the first 1,000 they are read page by page, and earlier if the steps
        have very many parents."""
        async with searching(self._store, caller.tenant, "steps", isolation=ONE_SNAPSHOT) as connection:
            found = await self._find(connection, caller.tenant, run_id)
            places = range(found.definition.graph().page_end(0, min(len(found.definition.steps), SHOWN_STEPS)))
            steps = await self._steps(connection, caller.tenant, found, places)
            counts = await _counts(connection, caller.tenant, found)
        brief = _brief(found, counts)
        parameters: dict[str, Any] = msgspec.json.decode(found.run.payload_text or "{}")
        more = len(found.definition.steps) > len(places)
        return WorkflowRunView(
            parameters=parameters,
            steps=steps,
            edges=[[parent, step.name] for step in steps for parent in step.depends_on],
            next=encode_cursor(str(len(places))) if more else None,
            etag=_tag(found),
            **{name: getattr(brief, name) for name in WorkflowRunBrief.__struct_fields__},
        )

    async def needs(self, caller: Caller, run_id: UUID, most_bytes: int) -> list[WorkerNeeds]:
        """What the steps of a run need from workers. Nothing is said of a definition of more than `most_bytes`, or if
        it cannot be read: the run has been created."""
        tenant = caller.tenant
        try:
            async with self._store.reads.acquire() as connection:
                run = await history.find_run(connection, tenant, run_id)
                if run is None:
                    return []
                key: VersionKey = (job_id_of(run), run.generation, spec_from_text(run.spec_text).workflow or 0)
                stored = await workflow_versions.size_of_source(connection, tenant, key)
                if stored is None or stored.size > most_bytes:
                    return []
                definition = await self._definitions.get(connection, tenant, key)
        except (MainspringError, asyncpg.PostgresError, *AWAY):
            return []
        return list(dict.fromkeys(map(needs_of, definition.steps)))[:_MOST_NEEDS]

    async def check(self, caller: Caller, run_id: UUID) -> UUID:
        """The workflow run with this id, which may be that of a rerun. Raises NotFound for others, also for steps."""
        async with self._store.reads.acquire() as connection:
            return (await self._find(connection, caller.tenant, run_id)).run.run_id

    async def steps(self, caller: Caller, run_id: UUID, query: StepQuery) -> StepRunList:
        """Steps in the order of the definition, or the members of a mapped step by index."""
        start = _number(query.cursor)
        if query.members and query.name is None:
            raise InvalidInput(
                "members are those of one step", code="invalid_parameter", field="name", hint="name the mapped step"
            )
        wanted = {state.value for state in named_states(query.statuses)} if query.statuses else None
        async with searching(self._store, caller.tenant, "steps", isolation=ONE_SNAPSHOT) as connection:
            found = await self._find(connection, caller.tenant, run_id)
            chosen = None if query.name is None else _place(found.definition, query.name)
            if query.members and chosen is not None:
                return await self._members(connection, caller.tenant, found, chosen, query, start, wanted)
            first, end = (start, len(found.definition.steps)) if chosen is None else (chosen, chosen + 1)
            shown: list[StepRunView] = []
            graph = found.definition.graph()
            place, room = first, SHOWN_PARENTS
            while place < end and len(shown) < query.limit and room > 0 and place - first < _LOOKED_AT:
                part = range(place, graph.page_end(place, min(place + _at_once(query), end)))
                for view in await self._steps(connection, caller.tenant, found, part):
                    if len(shown) == query.limit or room <= 0:
                        break
                    if wanted is None or view.status in wanted:
                        shown.append(view)
                        room -= graph.size_of_parents(place)
                    place += 1
        return StepRunList(shown, encode_cursor(str(place)) if place < end else None)

    async def runs(
        self, caller: Caller, workflow_id: str, statuses: Sequence[str], cursor: str | None, limit: int
    ) -> WorkflowRunList:
        """The runs of a workflow, newest first. A rerun is not a run of its own."""
        wanted = {state.value for state in named_states(statuses)} if statuses else None
        page = await self._runs.runs_of_job(caller, workflow_id, cursor, limit)
        ids = [UUID(view.run_id) for view in page.runs if not view.trigger.startswith(RERUN_TRIGGER)]
        shown: list[WorkflowRunBrief] = []
        async with searching(self._store, caller.tenant, "runs of a workflow", isolation=ONE_SNAPSHOT) as connection:
            for run_id in ids:
                try:
                    found = await self._find(connection, caller.tenant, run_id)
                except NotFound:  # it was pruned meanwhile
                    continue
                if wanted is None or brief_view(found.container).status in wanted:
                    shown.append(_brief(found, await _counts(connection, caller.tenant, found)))
        return WorkflowRunList(shown, page.next)

    async def _find(self, connection: Connection, tenant: TenantId, run_id: UUID) -> FoundRun:
        """The workflow run with this id. The id of a rerun is that of the workflow run too."""
        flow = await workflows.of_run(connection, tenant, _NO_PREFIX, run_id)
        run = await history.find_run(connection, tenant, run_id if flow is None else flow.flow_id)
        if run is None and flow is not None:
            run = await workflow_reads.kept_run(connection, tenant, flow.flow_id)
        if run is None or (await load_lane(self._lanes, connection, run.lane_id)).task != WORKFLOW_TASK:
            hint = "see GET /v1/workflows/{workflow_id}/runs"
            raise NotFound(f"there is no workflow run {run_id}", hint=hint)
        version = flow.version if flow is not None else spec_from_text(run.spec_text).workflow or 0
        key: VersionKey = (job_id_of(run), run.generation, version)
        definition = await self._definitions.get(connection, tenant, key)
        reruns = [] if flow is None or not flow.reruns else await workflow_reads.reruns(connection, flow.flow_id)
        container = brief_of(run)
        if flow is not None and flow.container != run.run_id:
            container = await _rerun_of(connection, tenant, flow.container, container)
        prefix = _NO_PREFIX if flow is None else flow.prefix
        numbers = Numbers(prefix, len(definition.steps), [(one.first_number, one.steps) for one in reruns])
        return FoundRun(run, container, definition, version, flow, numbers)

    async def _steps(
        self, connection: Connection, tenant: TenantId, found: FoundRun, places: Sequence[int]
    ) -> list[StepRunView]:
        names = [step.name for step in found.definition.steps]
        graph = found.definition.graph()
        ids = {} if found.flow is None else {place: found.numbers.run_id(place) for place in places}
        rows = await workflow_reads.runs(connection, tenant, list(ids.values())) if ids else {}
        gone = [run_id for run_id in ids.values() if run_id not in rows]
        ends = await workflow_reads.ends(connection, gone) if gone else {}
        mapped = [ids[place] for place in places if place in ids and found.definition.steps[place].map is not None]
        maps = await workflow_reads.maps(connection, mapped) if mapped else {}
        waiting = [ids[place] for place in places if place in ids and found.definition.steps[place].may_wait]
        opened = await waits.of_runs(connection, waiting) if waiting else {}
        calling = [ids[place] for place in places if place in ids and found.definition.steps[place].calls]
        children = await child_runs.children_of(connection, calling) if calling else {}
        views = [
            _step_view(
                found.definition.steps[place],
                run_id := ids.get(place),
                rows.get(run_id) if run_id else None,
                ends.get(run_id) if run_id else None,
                rerun=found.numbers.of(place)[1],
                parents=[names[parent] for parent in graph.parents(place)],
                members=maps.get(run_id) if run_id else None,
                wait=opened.get(run_id) if run_id else None,
                child=children.get(run_id) if run_id else None,
            )
            for place in places
        ]
        steps = (found.definition.steps[place] for place in places)
        await _say_what_lacks(connection, tenant, [one for one in zip(steps, views, strict=True) if one[0].map is None])
        await show_quota_holds(connection, tenant, views)
        return views

    async def _members(
        self,
        connection: Connection,
        tenant: TenantId,
        found: FoundRun,
        place: int,
        query: StepQuery,
        start: int,
        wanted: set[str] | None,
    ) -> StepRunList:
        step = found.definition.steps[place]
        flow, run_id = found.flow, found.numbers.run_id(place)
        row = None if flow is None else (await workflow_reads.maps(connection, [run_id])).get(run_id)
        if flow is None or row is None or row.first_number is None:
            if step.map is None:
                raise InvalidInput(
                    f"step {step.name!r} has no members", code="invalid_parameter", field="members",
                    hint="only a step with a map has them",
                )  # fmt: skip
            return StepRunList([])
        shown: list[StepRunView] = []
        hold = await read_quota_hold(connection, tenant)
        first, end = start, row.expanded if row.repeats is None else row.total or 0
        while start < end and len(shown) < query.limit and start - first < _LOOKED_AT:
            indexes = range(start, min(start + _at_once(query), end))
            ids = await member_runs(connection, run_id, indexes)
            rows = await workflow_reads.runs(connection, tenant, list(ids.values()))
            for index in indexes:
                if len(shown) == query.limit:
                    break
                start = index + 1
                if (member := ids.get(index)) is None:
                    continue
                rerun = found.numbers.rerun_of(number_of(member))
                view = _step_view(step, member, rows.get(member), None, rerun=rerun, index=index)
                show_held([view], hold)
                if wanted is None or view.status in wanted:
                    shown.append(view)
        await _say_what_lacks(connection, tenant, [(step, view) for view in shown])
        return StepRunList(shown, encode_cursor(str(start)) if start < end else None)


def _at_once(query: StepQuery) -> int:
    """How many steps one statement reads. Few of those with a certain state may be wanted."""
    return max(query.limit, _AT_ONCE) if query.statuses else query.limit


async def _say_what_lacks(
    connection: Connection, tenant: TenantId, steps: Sequence[tuple[StepDefinition, StepRunView]]
) -> None:
    """Give queued steps that no live worker takes the reason why."""
    waiting = [(needs_of(step), view) for step, view in steps if view.status == "QUEUED" and view.reason is None]
    if not waiting:
        return
    missing = lacking_by_needs((needs for needs, _ in waiting), await workers.offers(connection, tenant))
    for needs, view in waiting:
        view.reason = missing.get(needs)


async def _rerun_of(connection: Connection, tenant: TenantId, rerun: UUID, first: BriefRun) -> BriefRun:
    """The run that stands for a rerun, also if it has left the history."""
    if (row := (await workflow_reads.runs(connection, tenant, [rerun])).get(rerun)) is not None:
        return row
    if (end := (await workflow_reads.ends(connection, [rerun])).get(rerun)) is None:
        return first
    return msgspec.structs.replace(first, run_id=rerun, state=end.state, reason=end.reason, ended_at=end.ended_at)


def _step_view(
    step: StepDefinition,
    run_id: UUID | None,
    row: BriefRun | None,
    end: KeptEnd | None,
    *,
    rerun: int,
    parents: Sequence[str] = (),
    members: MapRow | None = None,
    index: int | None = None,
    wait: OpenWait | None = None,
    child: UUID | None = None,
) -> StepRunView:
    view = StepRunView(step.name, step.task, None, None, rerun=rerun, depends_on=list(parents), index=index)
    if row is not None:
        brief: RunBrief = brief_view(row)
        for name in ("status", "reason", "attempt_number", "max_attempts", "created_at", "start_time", "end_time",
                     "duration", "error_message"):  # fmt: skip
            setattr(view, name, getattr(brief, name))
        view.run_id = str(run_id)
    elif end is not None:
        view.status, view.reason, view.end_time = StoredState(end.state).name, end.reason, end.ended_at
        view.run_id = str(run_id)
    if wait is not None:
        view.reason, view.start_time, view.wakes_at = wait.in_words, wait.began_at, wait.wake_at
    if child is not None:
        view.child_run_id = str(child)
    if members is not None:
        view.map = MapProgress(members.total, members.expanded, members.ok, members.failed, members.skipped)
    return view


async def _counts(connection: Connection, tenant: TenantId, found: FoundRun) -> dict[str, int]:
    """How many steps are in each state."""
    if found.flow is None:
        return {}
    listed: Counter[int] = Counter()
    for first, last in found.numbers.ranges:
        listed.update(await workflow_reads.count(connection, first, last, found.numbers.replaced))
    held = await held_tenants(connection, [tenant] if listed[StoredState.QUEUED] else [])
    counts: dict[str, int] = {}
    for one, number in listed.items():
        if number:
            state = shown_of_listed(one, quota_holds=bool(held))
            word = RunState.SCHEDULED.value if state == SHOWN_SCHEDULED else StoredState(state).name
            counts[word] = counts.get(word, 0) + number
    return counts


def _brief(found: FoundRun, counts: dict[str, int]) -> WorkflowRunBrief:
    run, now = brief_view(brief_of(found.run)), brief_view(found.container)
    flow = found.flow
    started = flow.started_at if flow is not None else run.start_time
    ended = now.end_time
    return WorkflowRunBrief(
        run_id=run.run_id,
        workflow_id=job_id_of(found.run),
        name=found.run.name or job_id_of(found.run),
        status=now.status,
        reason=_TIMING_OUT if flow is not None and flow.state == FlowState.TIMING_OUT else now.reason,
        trigger=run.trigger,
        scheduled_for=run.scheduled_for,
        created_at=run.created_at,
        start_time=started,
        end_time=ended,
        duration=None if started is None else ((ended or found.container.now) - started).total_seconds(),
        definition_version=found.version,
        generation=found.run.generation,
        step_count=len(found.definition.steps),
        counts=counts,
        reruns=0 if flow is None else flow.reruns,
        parent_run_id=parent_of(found.run.trigger),
    )


def _tag(found: FoundRun) -> str:
    if found.flow is None:
        return workflow_run_tag(ended=found.container.ended_at is not None, reruns=0)
    return workflow_run_tag(ended=found.flow.state not in ALIVE, reruns=found.flow.reruns)


def _place(definition: WorkflowDefinition, name: str) -> int:
    for place, step in enumerate(definition.steps):
        if step.name == name:
            return place
    raise NotFound(f"there is no step {name!r}", field="name", hint="see GET /v1/workflow-runs/{run_id}/steps")


def _number(cursor: str | None) -> int:
    if cursor is None:
        return 0
    text = decode_cursor(cursor)
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise bad_cursor()
    return int(text)
