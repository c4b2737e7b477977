"""Reads workflows: one with its steps, and lists of them."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from mainspring.domain.errors import NotFound
from mainspring.domain.intake.workflows import renamed
from mainspring.domain.workflows.flow import WORKFLOW_TASK
from mainspring.operations.access.caller import Caller
from mainspring.operations.paging.search import JobQuery
from mainspring.operations.read.jobs import JobReader
from mainspring.store import workflow_versions
from mainspring.store.pool import Store
from mainspring.store.workflow_versions import SourceSize, VersionKey
from mainspring.wire.jobs import JobView
from mainspring.wire.states import PriorityIn
from mainspring.wire.workflows import StepIn, WorkflowList, WorkflowView

_SHARED = tuple(
    name for name in WorkflowView.__struct_fields__ if name in JobView.__struct_fields__ and name != "timeout"
)


class StoredSource(msgspec.Struct, frozen=True):
    """What a definition was made from. steps: as JSON; large workflows are not decoded here. count: how many there
    are."""

    steps: bytes
    count: int
    queue: str | None
    priority: PriorityIn | None


class WorkflowReader:
    def __init__(self, store: Store, job_reader: JobReader) -> None:
        self._store = store
        self._jobs = job_reader

    async def job(self, caller: Caller, workflow_id: str, generation: int | None = None) -> JobView:
        """The job that a workflow is. Raises NotFound for other jobs."""
        try:
            view = await self._jobs.job(caller, workflow_id, generation)
        except NotFound as error:
            error.detail = error.detail.replace("job ", "workflow ", 1)
            raise renamed(error) from None
        if view.task != WORKFLOW_TASK or view.workflow_version is None:
            raise NotFound(f"job {workflow_id!r} is not a workflow", hint=f"see GET /v1/jobs/{workflow_id}")
        return view

    async def brief(self, caller: Caller, view: JobView) -> SourceSize:
        """How large the definition of a workflow is."""
        async with self._store.reads.acquire() as connection:
            found = await workflow_versions.size_of_source(connection, caller.tenant, version_key(view))
        if found is None:
            raise _without_definition(view)
        return found

    async def workflow(self, caller: Caller, view: JobView) -> WorkflowView:
        """A workflow with its steps as they were given."""
        source = await self.source(caller, view)
        return workflow_view(view, source.count, msgspec.Raw(source.steps))

    async def source(self, caller: Caller, view: JobView) -> StoredSource:
        """What the definition of a workflow was made from."""
        async with self._store.reads.acquire() as connection:
            row = await workflow_versions.source(connection, caller.tenant, version_key(view))
        if row is None:
            raise _without_definition(view)
        return StoredSource(
            row.steps_text.encode(),
            row.steps,
            msgspec.json.decode(row.queue_text or "null", type=str | None),
            msgspec.json.decode(row.priority_text or "null", type=PriorityIn | None),
        )

    async def workflows(self, caller: Caller, query: JobQuery) -> WorkflowList:
        """A page of workflows, newest first, without their steps."""
        page = await self._jobs.jobs(caller, msgspec.structs.replace(query, task=WORKFLOW_TASK))
        keys = [version_key(view) for view in page.jobs]
        async with self._store.reads.acquire() as connection:
            counts = await workflow_versions.counts_of_steps(connection, caller.tenant, keys)
        views = [workflow_view(view, counts.get(key, 0)) for view, key in zip(page.jobs, keys, strict=True)]
        return WorkflowList(views, page.next, page.searched_to)


def version_key(view: JobView) -> VersionKey:
    return view.job_id, view.generation, view.workflow_version or 0


def _without_definition(view: JobView) -> NotFound:
    which = f"workflow {view.job_id!r} has no definition {view.workflow_version}"
    return NotFound(which, hint="a definition that no run has is deleted some days after it was replaced")


def workflow_view(view: JobView, step_count: int, steps: msgspec.Raw | None = None) -> WorkflowView:
    """A job as the workflow that it is. The limit of a run is the timeout of the workflow. The steps are sent as they
    are stored."""
    return WorkflowView(
        workflow_id=view.job_id,
        timeout=view.run_timeout,
        parameters=parameters_of(view),
        step_count=step_count,
        definition_version=view.workflow_version or 0,
        steps=[] if steps is None else cast(list[StepIn], steps),
        **{name: getattr(view, name) for name in _SHARED},
    )


def parameters_of(view: JobView) -> dict[str, Any]:
    """The parameters of a workflow. They are the payload of its job."""
    found: dict[str, Any] = {} if view.payload is None else msgspec.json.decode(bytes(memoryview(view.payload)))
    return found
