"""Create, change and run workflows. A workflow is a job: these operations check its steps, and leave the rest to the
operations on jobs. Its definition is stored in the transaction that stores or changes the job."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection
from datetime import datetime
from itertools import islice
from typing import TypeVar

import msgspec
from msgspec import UNSET

from mainspring.domain.errors import Conflict, InvalidInput, MainspringError, VersionMismatch
from mainspring.domain.intake.canonical import canonical_json
from mainspring.domain.intake.patch import amend
from mainspring.domain.intake.workflows import (
    ReadStep,
    WorkflowSource,
    check_count,
    check_graph,
    define_workflow,
    join_steps,
    parameters_as_payload,
    patch_of_job,
    read_step,
    renamed,
    request_of_step,
    run_parameters,
    shape_of,
    with_version,
)
from mainspring.domain.job import JobDefinition
from mainspring.domain.workflows.definition import WorkflowDefinition, definition_to_text
from mainspring.kernel.clock import DatabaseClock
from mainspring.kernel.ids import TenantId
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.access.caller import Caller
from mainspring.operations.control.amend import Amender
from mainspring.operations.control.run_now import ManualRuns, RanNow
from mainspring.operations.signatures.path_compiler import compile_paths
from mainspring.operations.signatures.signature_registry import SignatureRegistry
from mainspring.operations.submit.submitter import Submitted, Submitter
from mainspring.operations.workflows.reader import WorkflowReader, parameters_of
from mainspring.store import workflow_versions
from mainspring.store.jobs import LockedJob
from mainspring.store.pool import Connection
from mainspring.wire.jobs import JobPatch, JobRequest, JobView, RunNowRequest
from mainspring.wire.workflows import StepIn, WorkflowCheck, WorkflowPatch, WorkflowRequest, WorkflowRunNow

R = TypeVar("R")

_SMALL = 200  # steps that are joined at once
_SHOWN = 100
_TRIES = 3
_OF_A_DEFINITION = ("steps", "parameters", "queue", "priority")
_encode = msgspec.json.Encoder().encode


class Version(msgspec.Struct, frozen=True):
    """A definition that is about to be stored, as JSON."""

    steps: int
    definition: str
    source: str


class WorkflowChanges:
    def __init__(
        self,
        clock: DatabaseClock,
        signatures: SignatureRegistry,
        submitter: Submitter,
        amender: Amender,
        manual_runs: ManualRuns,
        reader: WorkflowReader,
    ) -> None:
        self._clock = clock
        self._signatures = signatures
        self._submitter = submitter
        self._amender = amender
        self._manual_runs = manual_runs
        self._workflows = reader

    async def create(self, caller: Caller, request: WorkflowRequest) -> Submitted:
        """Store a workflow. With an idempotency key a repeated request creates no second one."""
        definition = define_workflow(request, self._clock.now())
        source = WorkflowSource(request.steps, request.queue, request.priority)
        version = await self._version(caller.tenant, source, request.parameters or {})
        digest = None if request.idempotency_key is None else await asyncio.to_thread(_digest, request)

        async def also(connection: Connection, workflow_id: str, generation: int) -> None:
            await _store(connection, caller, workflow_id, generation, 1, version)

        try:
            return await self._submitter.submit_defined(caller, definition, digest, also)
        except MainspringError as error:
            raise renamed(error) from None

    async def validate(self, caller: Caller, request: WorkflowRequest) -> WorkflowCheck:
        """Check a workflow without storing it."""
        job = define_workflow(request, self._clock.now())
        try:
            await self._submitter.validate_defined(caller, job)
        except MainspringError as error:
            raise renamed(error) from None
        source = WorkflowSource(request.steps, request.queue, request.priority)
        read = await self._read(caller.tenant, source, request.parameters or {})
        graph, layers = await _by_size(check_graph, source.steps, read)
        first = (step for step, join in enumerate(graph.waits_for) if join is None)
        return WorkflowCheck(
            steps=len(graph.names),
            edges=graph.edges,
            layers=layers,
            first=[graph.names[step] for step in islice(first, _SHOWN)],
            last=[graph.names[step] for step in graph.last()[:_SHOWN]],
        )

    async def update(self, caller: Caller, workflow_id: str, patch: WorkflowPatch, if_version: int | None) -> None:
        """Change a workflow. Runs that have fired keep the definition that they were fired with."""
        for _ in range(_TRIES):
            try:
                return await self._update(caller, workflow_id, patch, if_version)
            except VersionMismatch:
                if if_version is not None:
                    raise
        raise Conflict(f"workflow {workflow_id!r} changed meanwhile", code="changed_meanwhile", hint="try again")

    async def _update(self, caller: Caller, workflow_id: str, patch: WorkflowPatch, if_version: int | None) -> None:
        """The steps are checked before the job is locked, with the parameters that this version of it has."""
        job_patch = patch_of_job(patch)
        view = await self._workflows.job(caller, workflow_id)
        prepared: Version | None = None
        if any(getattr(patch, name) is not UNSET for name in _OF_A_DEFINITION):
            prepared = await self._changed(caller, view, patch)
            if_version = view.version if if_version is None else if_version
        elif job_patch is None:
            raise InvalidInput("the body contains no field to change", field="$", hint='such as {"priority": "high"}')

        async def change(connection: Connection, row: LockedJob, stored: JobDefinition) -> JobDefinition:
            changed = stored if job_patch is None else _amended(stored, job_patch, row.now)
            if prepared is None:
                return changed
            version = await workflow_versions.newest(connection, caller.tenant, row.job_id, row.generation) + 1
            await _store(connection, caller, row.job_id, row.generation, version, prepared)
            return with_version(changed, version)

        await self._amender.update_by(caller, workflow_id, change, if_version)

    async def run_now(
        self, caller: Caller, workflow_id: str, request: WorkflowRunNow, if_version: int | None = None
    ) -> RanNow:
        """A run beside the schedule, with values for some of the parameters."""
        view = await self._workflows.job(caller, workflow_id)
        payload = msgspec.Raw()
        if request.parameters is not None:
            payload = parameters_as_payload(run_parameters(parameters_of(view), request.parameters))
        run_now = RunNowRequest(payload=payload, idempotency_key=request.idempotency_key)
        try:
            return await self._manual_runs.run_now(caller, workflow_id, run_now, if_version)
        except MainspringError as error:
            raise renamed(error) from None

    async def pause(self, caller: Caller, workflow_id: str, if_version: int | None = None) -> None:
        await self._workflows.job(caller, workflow_id)
        await self._amender.pause(caller, workflow_id, if_version)

    async def resume(self, caller: Caller, workflow_id: str, if_version: int | None = None) -> None:
        await self._workflows.job(caller, workflow_id)
        await self._amender.resume(caller, workflow_id, if_version)

    async def delete(self, caller: Caller, workflow_id: str, if_version: int | None) -> None:
        """It fires no more, and its live runs are cancelled."""
        await self._workflows.job(caller, workflow_id)
        await self._amender.cancel_job(caller, workflow_id, if_version)

    async def _changed(self, caller: Caller, view: JobView, patch: WorkflowPatch) -> Version:
        """The next version of a definition."""
        source = await self._workflows.source(caller, view)
        source = WorkflowSource(
            steps=source.steps if patch.steps is UNSET else patch.steps,
            queue=source.queue if patch.queue is UNSET else patch.queue,
            priority=source.priority if patch.priority is UNSET else patch.priority,
        )
        parameters = parameters_of(view) if patch.parameters is UNSET else patch.parameters or {}
        return await self._version(caller.tenant, source, parameters)

    async def _version(self, tenant: TenantId, source: WorkflowSource, parameters: Collection[str]) -> Version:
        read = await self._read(tenant, source, parameters)
        definition = await _by_size(join_steps, source.steps, read)
        if len(source.steps) <= _SMALL:
            return _as_json(definition, source)
        return await asyncio.to_thread(_as_json, definition, source)

    async def _read(self, tenant: TenantId, source: WorkflowSource, parameters: Collection[str]) -> list[ReadStep]:
        """What each step is by itself. Steps of one shape are read once: large workflows have few."""
        check_count(source.steps)
        slices = TimeSlices()
        places: dict[tuple[bool, bytes], int] = {}
        firsts: list[int] = []  # the first step of each shape
        shapes: list[int] = []
        requests: list[JobRequest] = []
        for index, step in enumerate(source.steps):
            shape = places.setdefault(shape_of(step), len(places))
            shapes.append(shape)
            if shape == len(firsts):
                firsts.append(index)
                requests.append(request_of_step(step, source))
            if slices.over:
                await slices.pause()
        await compile_paths(requests)
        now, known = self._clock.now(), self._signatures.known(tenant)
        read: list[ReadStep] = []
        for index, request in zip(firsts, requests, strict=True):
            read.append(read_step(index, source.steps[index], request, now, known, parameters))
            if slices.over:
                await slices.pause()
        return [read[shape] for shape in shapes]


async def _by_size(work: Callable[[list[StepIn], list[ReadStep]], R], steps: list[StepIn], read: list[ReadStep]) -> R:
    """In a thread if there are many steps."""
    return work(steps, read) if len(read) <= _SMALL else await asyncio.to_thread(work, steps, read)


def _amended(stored: JobDefinition, patch: JobPatch, now: datetime) -> JobDefinition:
    try:
        return amend(stored, patch, now)
    except MainspringError as error:
        raise renamed(error) from None


async def _store(
    connection: Connection, caller: Caller, workflow_id: str, generation: int, version: int, what: Version
) -> None:
    await workflow_versions.insert(
        connection,
        caller.tenant,
        (workflow_id, generation, version),
        steps=what.steps,
        definition=what.definition,
        source=what.source,
        created_by=caller.name,
    )


def _as_json(definition: WorkflowDefinition, source: WorkflowSource) -> Version:
    return Version(len(source.steps), definition_to_text(definition), _encode(source).decode())


def _digest(request: WorkflowRequest) -> bytes:
    return hashlib.sha256(canonical_json(_encode(request))).digest()
