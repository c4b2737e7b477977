"""Jobs of files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mainspring.domain.dependencies import parents_of
from mainspring.domain.errors import Conflict
from mainspring.domain.file_jobs import exported_job, field_changes, in_file, instead, wanted_job
from mainspring.domain.job import JobDefinition
from mainspring.domain.transitions import StoredJobStatus
from mainspring.domain.workflows.flow import WORKFLOW_TASK
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.access.caller import Caller
from mainspring.operations.calendars.rules import load_rules
from mainspring.operations.control.amend import GivenChange
from mainspring.operations.files.kinds import Done, FileEntry, declared_elsewhere
from mainspring.operations.files.parts import FileServices, Parts
from mainspring.operations.lookup import load_lane, no_job
from mainspring.operations.paging.search import JobQuery
from mainspring.operations.read.jobs import JobReader
from mainspring.operations.signatures.slow_checks import prepare_checks
from mainspring.store import declarations, file_objects, jobs
from mainspring.store.jobs import JobRow, LockedJob
from mainspring.store.pool import Connection
from mainspring.wire.files import ExportedObject, FieldChange
from mainspring.wire.jobs import JobPatch, JobRequest
from mainspring.wire.schedules import ScheduleIn

MOST_RUNS_SHOWN = 100


def in_order(entries: Sequence[FileEntry], parents: Callable[[FileEntry], Iterable[str]]) -> list[FileEntry]:
    """Each comes after its parents. In a cycle the order is that of the ids, and the cycle is refused."""
    by_id = {entry.id: entry for entry in sorted(entries, key=lambda entry: entry.id)}
    children: dict[str, list[str]] = {name: [] for name in by_id}
    missing = dict.fromkeys(by_id, 0)
    for name, entry in by_id.items():
        for parent in {parent for parent in parents(entry) if parent in by_id}:
            children[parent].append(name)
            missing[name] += 1
    placed = dict.fromkeys(name for name, count in missing.items() if not count)
    ready = list(placed)
    for parent in ready:  # it grows meanwhile
        for name in children[parent]:
            missing[name] -= 1
            if not missing[name]:
                placed[name] = None
                ready.append(name)
    return [by_id[name] for name in placed | dict.fromkeys(by_id)]


class JobsOfFiles:
    section = "jobs"
    audited = "job"

    def arranged(self, entries: Sequence[FileEntry]) -> list[FileEntry]:
        """Jobs come after those that they follow."""
        return in_order(entries, lambda entry: _named_parents(entry.body))

    async def prepare(self, services: FileServices, caller: Caller, entry: FileEntry) -> None:
        entry.wanted = in_file(entry.body, entry.id)
        await prepare_checks([entry.wanted])
        wanted_job(entry.wanted, services.clock.now(), services.signatures.known(caller.tenant))

    async def put(self, parts: Parts, entry: FileEntry) -> Done:
        connection, tenant, request = parts.connection, parts.caller.tenant, entry.wanted
        row = await jobs.get(connection, tenant, entry.id)
        if row is None or row.status == StoredJobStatus.CANCELLED:
            done = await parts.submitter.submit(parts.caller, request)
            return await done_to(parts, entry.id, "create", warnings=done.warnings)
        stored = await stored_definition(parts, row)
        if stored.task == WORKFLOW_TASK:
            raise Conflict(f"{entry.id!r} is a workflow", code="is_a_workflow", hint="put it under workflows")
        if row.declared_by is not None:
            raise declared_elsewhere("job", entry.id, row.declared_by)
        now = parts.clock.now()
        wanted = instead(stored, wanted_job(request, row.created_at, parts.known))
        if wanted.schedule != stored.schedule:
            wanted = instead(stored, wanted_job(request, now, parts.known))
        fields = field_changes(stored, wanted, now)
        if not fields:
            return Done("unchanged", row.version, generation=row.generation)
        if wanted.payload != stored.payload:
            parts.services.quotas.check_payload(parts.caller, wanted.payload)
        warnings = await change_job(parts, row, stored, wanted)
        return await done_to(parts, entry.id, "change", fields, warnings)

    async def remove(self, parts: Parts, object_id: str, generation: int) -> Done | None:
        return await remove_job(parts, object_id, generation)

    async def export(
        self, services: FileServices, caller: Caller, after: str | None, limit: int
    ) -> tuple[list[ExportedObject], str | None]:
        reader = JobReader(services.store, services.lanes, services.runs)
        page = await reader.jobs(caller, JobQuery(cursor=after, limit=limit), light=True)
        ids = [
            view.job_id
            for view in page.jobs
            if view.workflow_version is None and view.schedule_type not in ("IMMEDIATE", "FUTURE")
        ]
        known, now = services.signatures.known(caller.tenant), services.clock.now()
        found: list[ExportedObject] = []
        slices = TimeSlices()
        async with services.store.reads.acquire() as connection:
            rows = await declarations.jobs_by_id(connection, caller.tenant, ids) if ids else []
            owners = await file_objects.of_kind(connection, caller.tenant, self.section, ids)
            for row in rows:
                stored = jobs.definition_of(row, await load_lane(services.lanes, connection, row.lane_id))
                owner = owners.get(row.job_id)
                body = exported_job(stored, now, known)
                found.append(
                    ExportedObject(
                        self.section, row.job_id, body, None if owner is None else owner.owner, row.declared_by
                    )
                )
                if slices.over:
                    await slices.pause()
        return sorted(found, key=lambda one: one.id), page.next


def _named_parents(request: JobRequest) -> list[str]:
    after = request.schedule.after if isinstance(request.schedule, ScheduleIn) else None
    return after or request.depends_on or request.dependencies or []


async def stored_definition(parts: Parts, row: JobRow) -> JobDefinition:
    definition = jobs.definition_of(row, await load_lane(parts.lanes, parts.connection, row.lane_id))
    await load_rules(parts.connection, row.tenant_id, [definition.schedule])
    return definition


async def done_to(
    parts: Parts,
    job_id: str,
    action: str,
    fields: Sequence[FieldChange] = (),
    warnings: Sequence[str] = (),
) -> Done:
    """What was done to a job, with the version that it has now."""
    row = await jobs.get(parts.connection, parts.caller.tenant, job_id)
    if row is None:
        raise no_job(job_id)
    return Done(action, row.version, [*fields], warnings=[*warnings], generation=row.generation)


async def change_job(parts: Parts, row: JobRow, stored: JobDefinition, wanted: JobDefinition) -> list[str]:
    """Give the job the definition, if it is still the version that was read. Returns warnings."""

    async def change(_: Connection, _row: LockedJob, _stored: JobDefinition) -> JobDefinition:
        return wanted

    new_parents = parents_of(stored) != parents_of(wanted)
    given = GivenChange(names_schedule=wanted.schedule != stored.schedule)
    patch = None if new_parents else JobPatch()
    return await parts.amender.update_by(parts.caller, row.job_id, change, row.version, given, patch)


async def remove_job(parts: Parts, job_id: str, generation: int) -> Done | None:
    """Cancel the job, unless it is gone, was created anew under its id, or belongs to an application now."""
    row = await jobs.get(parts.connection, parts.caller.tenant, job_id)
    if row is None or row.status == StoredJobStatus.CANCELLED:
        return None
    if row.generation != generation or row.declared_by is not None:
        return None
    live = await file_objects.live_runs(parts.connection, parts.caller.tenant, job_id, MOST_RUNS_SHOWN)
    effects = await parts.amender.cancel_job_in(parts.caller, parts.connection, job_id)
    parts.after.effects.append(effects)
    return Done("remove", 0, live_runs=live)
