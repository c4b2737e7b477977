"""Workflows of files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mainspring.domain.errors import Conflict
from mainspring.domain.file_jobs import (
    exported_job,
    exported_schedule,
    field_changes,
    in_words,
    instead,
    not_once,
    same_schedule,
)
from mainspring.domain.intake.workflows import WorkflowSource, define_workflow, with_version
from mainspring.domain.job import JobDefinition
from mainspring.domain.transitions import StoredJobStatus
from mainspring.domain.workflows.flow import WORKFLOW_TASK
from mainspring.kernel.config import LARGE_BYTES
from mainspring.operations.access.caller import Caller
from mainspring.operations.files.jobs import done_to, in_order, remove_job, stored_definition
from mainspring.operations.files.kinds import Done, FileEntry, declared_elsewhere
from mainspring.operations.files.parts import FileServices, Parts
from mainspring.operations.lookup import load_lane
from mainspring.operations.paging.search import JobQuery
from mainspring.operations.read.jobs import JobReader
from mainspring.operations.workflows.large_preparation import REQUEST, Order
from mainspring.operations.workflows.preparation import Version, check
from mainspring.operations.workflows.reader import WorkflowReader
from mainspring.operations.workflows.workflow_changes import request_in, version_in
from mainspring.store import declarations, file_objects, jobs
from mainspring.wire.files import ExportedObject, FieldChange
from mainspring.wire.workflows import WorkflowPatch, WorkflowRequest

_encode = msgspec.json.Encoder().encode
_OF_A_DEFINITION = ("steps", "parameters", "queue", "priority")
# The fields of the job that a workflow is, under the names of the workflow.
_NAMES = {"payload": "parameters", "run_timeout": "timeout"}
_PLAIN = ("name", "misfire", "overlap", "timeout", "queue", "priority", "owner", "description", "labels", "parameters")
_AS_JOB = ("name", "overlap", "owner", "description", "labels", "misfire")


class _Steps(msgspec.Struct):
    """The steps that a definition was made from, as JSON."""

    steps: msgspec.Raw


_decode_source = msgspec.json.Decoder(_Steps).decode


def _called(entry: FileEntry) -> list[str]:
    steps = [] if isinstance(entry.body, bytes) else entry.body.steps
    return [step.workflow for step in steps if step.workflow is not None]


class _Wanted(msgspec.Struct, frozen=True):
    """A workflow as a file says it. The steps of a large one are not in its request: `version` was prepared of them."""

    request: WorkflowRequest
    steps: msgspec.Raw
    version: Version | None = None


class WorkflowsOfFiles:
    section = "workflows"
    audited = "job"

    def arranged(self, entries: Sequence[FileEntry]) -> list[FileEntry]:
        """Workflows come after those that their steps run. Of large ones, whose steps are not decoded here, it is not
        known."""
        return in_order(entries, _called)

    async def prepare(self, services: FileServices, caller: Caller, entry: FileEntry) -> None:
        now = services.clock.now()
        if isinstance(entry.body, bytes):
            order = Order(REQUEST, now, True, services.signatures.texts(caller.tenant))
            prepared = await services.large_workflows.prepare(caller.tenant, order, entry.body)
            request = msgspec.structs.replace(request_in(prepared), workflow_id=entry.id)
            not_once(define_workflow(request, now))
            version = version_in(prepared)
            entry.wanted = _Wanted(request, _decode_source(version.source).steps, version)
            return
        request = msgspec.structs.replace(entry.body, workflow_id=entry.id)
        not_once(define_workflow(request, now))
        source = WorkflowSource(request.steps, request.queue, request.priority)
        await check(source, request.parameters or {}, now, services.signatures.known(caller.tenant))
        entry.wanted = _Wanted(request, msgspec.Raw(_encode(request.steps)))

    async def put(self, parts: Parts, entry: FileEntry) -> Done:
        given_now: _Wanted = entry.wanted
        request, version = given_now.request, given_now.version
        row = await jobs.get(parts.connection, parts.caller.tenant, entry.id)
        if row is None or row.status == StoredJobStatus.CANCELLED:
            made = await parts.workflows.create(parts.caller, request, version)
            return await done_to(parts, entry.id, "create", warnings=made.warnings)
        stored = await stored_definition(parts, row)
        if stored.task != WORKFLOW_TASK:
            raise Conflict(f"{entry.id!r} is a job", code="job_exists", hint="put it under jobs, or give another id")
        if row.declared_by is not None:
            raise declared_elsewhere("workflow", entry.id, row.declared_by)
        now = parts.clock.now()
        wanted = define_workflow(request, row.created_at)
        if not same_schedule(stored.schedule, wanted.schedule):
            wanted = define_workflow(request, now)
        fields = await self._differing(parts, given_now, stored, with_version(wanted, stored.spec.workflow or 1))
        if not fields:
            return Done("unchanged", row.version, generation=row.generation)
        names = {one.field if one.field == "steps" or one.field in _PLAIN else "schedule" for one in fields}
        version = version if names & {*_OF_A_DEFINITION} else None
        given = {name: getattr(request, name) for name in names if name != "steps" or version is None}
        if "schedule" in given and given["schedule"] is None:
            given["schedule"] = "manual"
        patch = msgspec.json.decode(_encode(given), type=WorkflowPatch)
        warnings = await parts.workflows.update(parts.caller, entry.id, patch, row.version, version)
        return await done_to(parts, entry.id, "change", fields, warnings)

    async def _differing(
        self, parts: Parts, given: _Wanted, stored: JobDefinition, wanted: JobDefinition
    ) -> list[FieldChange]:
        now = parts.clock.now()
        found = [
            msgspec.structs.replace(one, field=_NAMES.get(one.field, one.field))
            for one in field_changes(stored, instead(stored, wanted), now)
        ]
        view = await parts.workflow_reader.job(parts.caller, given.request.workflow_id or "")
        source = await parts.workflow_reader.source(parts.caller, view)
        before, after = msgspec.Raw(source.steps), given.steps
        if not _same(source.steps, bytes(memoryview(after))):
            found.append(FieldChange("steps", before, after))
        return found

    async def remove(self, parts: Parts, object_id: str, generation: int) -> Done | None:
        return await remove_job(parts, object_id, generation)

    async def export(
        self, services: FileServices, caller: Caller, after: str | None, limit: int
    ) -> tuple[list[ExportedObject], str | None]:
        reader = JobReader(services.store, services.lanes, services.runs)
        workflows = WorkflowReader(services.store, reader)
        page = await reader.jobs(caller, JobQuery(task=WORKFLOW_TASK, cursor=after, limit=limit))
        found: list[ExportedObject] = []
        for view in page.jobs:
            if view.schedule_type in ("IMMEDIATE", "FUTURE"):
                continue
            source = await workflows.source(caller, view)
            async with services.store.reads.acquire() as connection:
                [row] = await declarations.jobs_by_id(connection, caller.tenant, [view.job_id])
                stored = jobs.definition_of(row, await load_lane(services.lanes, connection, row.lane_id))
                owners = await file_objects.of_kind(connection, caller.tenant, self.section, [view.job_id])
            whole = exported_job(stored, services.clock.now(), {})
            body: dict[str, Any] = {name: whole[name] for name in _AS_JOB if name in whole}
            body |= {"queue": source.queue, "priority": source.priority, "parameters": whole.get("payload")}
            body["timeout"] = None if view.run_timeout is None else in_words(view.run_timeout)
            body["steps"] = msgspec.Raw(source.steps)
            body = {name: value for name, value in body.items() if value is not None}
            when = exported_schedule(stored.schedule)
            body = body if when is None else {"schedule": when, **body}
            owner = owners.get(view.job_id)
            found.append(
                ExportedObject(
                    self.section, view.job_id, body, None if owner is None else owner.owner, view.declared_by
                )
            )
        return sorted(found, key=lambda one: one.id), page.next


def _same(before: bytes, after: bytes) -> bool:
    """Whether these are the same steps. Only small ones are, if their fields are in another order."""
    if before == after or max(len(before), len(after)) > LARGE_BYTES:
        return before == after
    return bool(msgspec.json.decode(before) == msgspec.json.decode(after))
