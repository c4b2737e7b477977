"""Steps that run another workflow, and the runs that they have started: their children."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.domain.workflows.children import ChildState
from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery
from mainspring.store.workflow_versions import VersionKey

_SQL = load("child_runs")
FIRST = UUID(int=0)


class ChildRun(msgspec.Struct, frozen=True):
    """A step that runs a workflow. run_id and job_id: of the step. child: None before it has started."""

    run_id: UUID
    tenant_id: TenantId
    workflow: str
    state: int
    child: UUID | None
    job_id: str | None


class CalledWorkflow(msgspec.Struct, frozen=True):
    """A workflow that a step is to run. calls: those that its own steps run."""

    job_id: str
    created_by: UUID | None
    status: int
    payload_text: str | None
    calls: list[str] | None


_to_do = RowQuery(ChildRun, _SQL["child_runs_to_do"])
_of_flow = RowQuery(ChildRun, _SQL["child_runs_of_flow"])
_lock = RowQuery(ChildRun, _SQL["lock_child_run"])
_called = RowQuery(CalledWorkflow, _SQL["called_workflows"])


async def open_all(connection: Connection, new: Sequence[tuple[UUID, str]]) -> int:
    """These steps wait for runs of these workflows. The caller has locked their runs, and compares the count."""
    done = await connection.execute(_SQL["open_child_runs"], [one[0] for one in new], [one[1] for one in new])
    return int(done.rpartition(" ")[2])


async def to_do(connection: Connection, state: ChildState, after: UUID, limit: int) -> list[ChildRun]:
    return await _to_do.fetch(connection, int(state), after, limit)


async def to_cancel_in(connection: Connection, first: UUID, last: UUID, limit: int) -> list[ChildRun]:
    """The steps with these ids whose children are to be cancelled."""
    return await _of_flow.fetch(connection, first, last, limit)


async def lock(connection: Connection, run_id: UUID, state: ChildState) -> ChildRun | None:
    """None if it is in another state. The caller has locked the run of the step."""
    return await _lock.first(connection, run_id, int(state))


async def started(connection: Connection, run_id: UUID, child: UUID) -> bool:
    """The step has this child. False if it has one. The caller has locked the run of the step."""
    return await connection.fetchval(_SQL["child_started"], run_id, child) is not None


async def follow(connection: Connection, child: UUID) -> bool:
    """A step waits for this run. False if the run has ended."""
    return await connection.fetchval(_SQL["follow_child"], child) is not None


async def ended(connection: Connection, children: Sequence[UUID]) -> int:
    """These children have ended. Returns how many steps that concerns."""
    return len(await connection.fetch(_SQL["children_ended"], children))


async def cancelled(connection: Connection, run_id: UUID) -> bool:
    """The child of this step is being cancelled. False if it was before. The caller has locked it."""
    return await connection.fetchval(_SQL["child_cancelled"], run_id) is not None


async def close_gone(connection: Connection, run_ids: Sequence[UUID]) -> int:
    """Close those of these steps that have ended. Returns how many."""
    return len(await connection.fetch(_SQL["close_child_runs"], run_ids))


async def find_lost(connection: Connection, limit: int) -> int:
    """Close what others have left. Returns how many."""
    return len(await connection.fetch(_SQL["lost_child_runs"], limit))


async def children_of(connection: Connection, run_ids: Sequence[UUID]) -> dict[UUID, UUID]:
    """The children of these steps, of those that have one."""
    return dict(await connection.fetch(_SQL["children_of"], run_ids))


async def callers_of(connection: Connection, flow_id: UUID, limit: int) -> list[str]:
    """The workflows that have led to this workflow run, nearest first, its own included."""
    return [job_id for (job_id,) in await connection.fetch(_SQL["callers_of"], flow_id, limit)]


async def results(connection: Connection, run_ids: Sequence[UUID], since: datetime) -> dict[UUID, str | None]:
    """The results of these runs, as JSON, of those that have succeeded."""
    return dict(await connection.fetch(_SQL["results_of_last_steps"], run_ids, since))


async def called(connection: Connection, tenant: TenantId, ids: Collection[str]) -> dict[str, CalledWorkflow]:
    """Those of these workflows that there are."""
    return {one.job_id: one for one in await _called.fetch(connection, tenant, sorted(ids))}


async def calls_of(connection: Connection, tenant: TenantId, key: VersionKey) -> UUID | None:
    """Whose workflows the steps of this version may run. None: anybody's."""
    found: UUID | None = await connection.fetchval(_SQL["calls_of_version"], tenant, *key)
    return found
