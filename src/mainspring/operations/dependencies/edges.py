"""Makes edges between jobs. Parents that do not exist and cycles are refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import msgspec

from mainspring.domain.dependencies import cyclic, find_cycle, is_met, no_parent, parents_of
from mainspring.domain.errors import InvalidBatch, InvalidInput, MainspringError
from mainspring.domain.job import JobDefinition
from mainspring.domain.transitions import StoredJobStatus
from mainspring.domain.workflows.flow import workflow_of
from mainspring.kernel.ids import TenantId
from mainspring.store import dependencies
from mainspring.store.dependencies import Edge, JobKey
from mainspring.store.pool import Connection

MOST_EDGES = 50_000  # of one request: each step of the work on them takes 25 ms


class Dependant(msgspec.Struct, frozen=True):
    """A job and what it depends on. fired_for: its last fire. given_as: the field of the request that names them."""

    job_id: str
    definition: JobDefinition
    fired_for: datetime | None = None
    given_as: str = "depends_on"

    @property
    def parents(self) -> list[str]:
        return parents_of(self.definition)

    @property
    def field(self) -> str:
        return self.given_as if self.definition.schedule.after is None else "schedule.after"


def check_count(definitions: Sequence[JobDefinition]) -> None:
    """Raise InvalidInput if jobs that are stored together depend on too many others."""
    count = sum(len(parents_of(item)) for item in definitions)
    if count > MOST_EDGES:
        raise InvalidInput(
            f"the jobs depend on {count:,} others in all", field="jobs",
            expected=f"at most {MOST_EDGES:,} in one request",
            hint="send them in smaller batches, or let a job in between depend on many",
        )  # fmt: skip


class Refused(Exception):
    """A job cannot have its edges. `place`: which of them it is."""

    def __init__(self, place: int, error: InvalidInput) -> None:
        super().__init__(error.detail)
        self.place = place
        self.error = error

    def of_submission(self, index: int, *, single: bool) -> MainspringError:
        """The error for a whole submission, of which this job is the one with that index."""
        return self.error if single else InvalidBatch([self.error.as_field_problem(index)])


async def make_edges(connection: Connection, tenant: TenantId, items: Sequence[Dependant]) -> None:
    """The edges of these jobs are those that they name, and no others. Raises Refused. The jobs are stored already, and
    the caller has locked the graph before all other locks."""
    await check_parents(connection, tenant, items)
    named = sorted({parent for item in items for parent in item.parents})
    edges = [
        Edge(parent, item.job_id, item.definition.schedule.after is not None, item.fired_for)
        for item in items
        for parent in item.parents
    ]
    await dependencies.set_edges(connection, tenant, [item.job_id for item in items], edges)
    if named:
        await _check_cycles(connection, tenant, items)
        await dependencies.follow(connection, tenant, named)


async def check_parents(
    connection: Connection, tenant: TenantId, items: Sequence[Dependant], new: Collection[str] = ()
) -> None:
    """Raise Refused if a parent does not exist and is not one of the `new` jobs."""
    named = sorted({parent for item in items for parent in item.parents}.difference(new))
    known = {job.job_id: job for job in await dependencies.known_jobs(connection, tenant, named)}
    for place, item in enumerate(items):
        for parent in item.parents:
            if parent in new:
                continue
            job = known[parent]
            deleted = job.status == StoredJobStatus.CANCELLED
            known_before = job.status is not None or (job.has_runs and workflow_of(parent) is None)
            if deleted or not known_before:
                raise Refused(place, no_parent(parent, item.field, deleted=deleted))


async def check_edges(connection: Connection, tenant: TenantId, item: Dependant) -> None:
    """Raise Refused if a job could not have the edges that it names. Nothing is stored. An empty id: a new one."""
    await check_parents(connection, tenant, [item], {item.job_id} - {""})
    await _check_cycles(connection, tenant, [item], {item.job_id: item.parents})


async def _check_cycles(
    connection: Connection, tenant: TenantId, items: Sequence[Dependant], instead: Mapping[str, list[str]] | None = None
) -> None:
    """`instead`: parents of jobs in place of those that are stored."""
    above: dict[str, list[str]] = {}
    level = sorted({item.job_id for item in items})
    names_itself = any(job in parents for job, parents in (instead or {}).items())
    if not names_itself and not await dependencies.is_parent(connection, tenant, level):
        return  # nothing follows them, as it is with most new jobs: however many levels are above, there is no cycle
    while level:
        for job in level:
            above[job] = []
        for child, parent in await dependencies.edges_above(connection, tenant, level):
            above[child].append(parent)
        above.update({job: parents for job, parents in (instead or {}).items() if job in level})
        level = sorted({parent for job in level for parent in above[job]} - above.keys())
    cycle = find_cycle(above)
    if cycle is not None:
        place = next(place for place, item in enumerate(items) if item.job_id in cycle)
        raise Refused(place, cyclic(cycle, items[place].field))


async def fire_if_met(connection: Connection, children: Sequence[JobKey]) -> int:
    """Let jobs fire whose parents have ended since their last fire, by their rules. Returns how many. The caller has
    locked the jobs, or locks them here."""
    locked = await dependencies.lock_children(connection, children)
    ends: dict[JobKey, list[bool]] = {}
    for edge in await dependencies.after_edges(connection, children):
        ends.setdefault((edge.tenant_id, edge.child), []).append(edge.satisfied)
    met = [
        key for child in locked if (key := (child.tenant_id, child.job_id)) in ends and is_met(child.rule, ends[key])
    ]
    return await dependencies.set_due(connection, met) if met else 0
