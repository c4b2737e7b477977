"""Changes of a job's edges. Runs that wait already wait for what they waited for before."""

from __future__ import annotations

from msgspec import UNSET

from mainspring.domain.job import JobDefinition
from mainspring.operations.dependencies.edges import Dependant, Refused, make_edges
from mainspring.store.jobs import LockedJob
from mainspring.store.pool import Connection
from mainspring.wire.jobs import JobPatch


def names_parents(patch: JobPatch | None) -> bool:
    """Whether the change may change the edges of a job. Then it must lock the graph before the job. None: the change of
    a workflow."""
    return patch is None or any(field is not UNSET for field in (patch.depends_on, patch.dependencies, patch.schedule))


async def change_edges(connection: Connection, row: LockedJob, changed: JobDefinition, patch: JobPatch | None) -> None:
    """The caller has locked the graph and the job. Raises InvalidInput."""
    given_as = "depends_on" if patch is None or patch.dependencies is UNSET else "dependencies"
    item = Dependant(row.job_id, changed, row.last_fired_for, given_as)
    try:
        await make_edges(connection, row.tenant_id, [item])
    except Refused as refused:
        raise refused.error from None
