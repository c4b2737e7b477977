"""Jobs after jobs: edges between jobs, and what WAITING runs wait for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from mainspring.kernel.ids import TenantId, first_uuid7, parse_uuid
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("dependencies")
FIRST = UUID(int=0)
MOST_ROWS = 1000  # rows that one statement changes because of the end of a run, however many runs wait for it
_CLOCKS_DIFFER = timedelta(hours=1)  # the id of a run has the time of the node that fired it
JobKey = tuple[TenantId, str]
FIRST_JOB: JobKey = (TenantId(0), "")


class KnownJob(msgspec.Struct, frozen=True):
    """status: a StoredJobStatus, if it has a row."""

    job_id: str
    status: int | None
    has_runs: bool


class Edge(msgspec.Struct, frozen=True):
    """fired_for: the last fire of the child."""

    parent: str
    child: str
    after: bool = False
    fired_for: datetime | None = None


class RunToPoll(msgspec.Struct, frozen=True):
    """A run that waits, and some of its parents. `next_fires` has the next fires of these parents; it is None if all
    runs that wait are polled."""

    run_id: UUID
    tenant_id: TenantId
    parents: list[str]
    next_fires: str | None


class DependantRun(msgspec.Struct, frozen=True):
    """A locked WAITING run. `limited`: it has limits."""

    run_id: UUID
    tenant_id: TenantId
    fence: int
    attempt: int
    job_id: str
    payload_text: str | None
    spec_text: str | None
    limited: bool


class WaitRow(msgspec.Struct, frozen=True):
    """What a run waits for: see the table job_waits. `parent_end` is a ParentEnd. `for_time`: the nominal time of the
    run."""

    run_id: UUID
    parent: str
    for_time: datetime
    since: datetime | None
    looked: bool
    parent_run: UUID | None
    parent_end: int | None
    cause: str | None


class ParentNow(msgspec.Struct, frozen=True):
    """What is known about a parent, for one run that waits for it. `status` is None if the parent has no row.
    `live_run` and `ended_run` are its runs for the same time. `any_run` is a live run of it. `success_run` is its first
    success since the previous fire of the job that waits. `last_state` is the state of its newest run since then."""

    place: int
    status: int | None
    next_fire_at: datetime | None
    one_time: bool
    schedule_text: str | None
    live_run: UUID | None
    any_run: UUID | None
    ended_run: UUID | None
    ended_state: int | None
    ended_reason: str | None
    success_run: UUID | None
    last_state: int | None
    last_reason: str | None
    missed: bool


class EndedParent(msgspec.Struct, frozen=True):
    run_id: UUID
    tenant_id: TenantId
    job_id: str
    state: int
    reason: str | None


class AfterChild(msgspec.Struct, frozen=True):
    """A locked job that fires after others."""

    tenant_id: TenantId
    job_id: str
    rule: str | None


class AfterEdge(msgspec.Struct, frozen=True):
    tenant_id: TenantId
    child: str
    parent: str
    satisfied: bool


_known_jobs = RowQuery(KnownJob, _SQL["known_jobs"])
_to_look_at = RowQuery(RunToPoll, _SQL["to_look_at"])
_all_waiting = RowQuery(RunToPoll, _SQL["all_waiting"])
_lock_waiting = RowQuery(DependantRun, _SQL["lock_waiting"])
_waits_of = RowQuery(WaitRow, _SQL["waits_of"])
_waits_to_look_at = RowQuery(WaitRow, _SQL["waits_to_look_at"])
_parents_now = RowQuery(ParentNow, _SQL["parents_now"])
_ended_parents = RowQuery(EndedParent, _SQL["ended_parents"])
_lock_children = RowQuery(AfterChild, _SQL["lock_children"])
_after_edges = RowQuery(AfterEdge, _SQL["after_edges"])


async def lock_graph(connection: Connection, tenant: TenantId) -> None:
    """Lock the edges: no other transaction makes edges between jobs of the tenant. It comes before all other locks."""
    await connection.execute(_SQL["lock_graph"], tenant)


async def known_jobs(connection: Connection, tenant: TenantId, job_ids: Sequence[str]) -> list[KnownJob]:
    return await _known_jobs.fetch(connection, tenant, job_ids, [parse_uuid(job_id) for job_id in job_ids])


async def set_edges(connection: Connection, tenant: TenantId, children: Sequence[str], edges: Sequence[Edge]) -> None:
    """The edges of these children are `edges`. Those that exist stay as they are. The caller has locked the graph."""
    parents, own = [edge.parent for edge in edges], [edge.child for edge in edges]
    kinds = [edge.after for edge in edges]
    await connection.execute(_SQL["drop_edges"], tenant, children, parents, own, kinds)
    if edges:
        fired = [edge.fired_for for edge in edges]
        await connection.execute(_SQL["add_edges"], tenant, parents, own, kinds, fired)


async def edges_above(connection: Connection, tenant: TenantId, children: Sequence[str]) -> list[tuple[str, str]]:
    """The edges of these children: (child, parent)."""
    return [tuple(row) for row in await connection.fetch(_SQL["edges_above"], tenant, children)]


async def is_parent(connection: Connection, tenant: TenantId, job_ids: Sequence[str]) -> bool:
    """Whether a job depends on one of these."""
    found: bool = await connection.fetchval(_SQL["is_parent"], tenant, job_ids)
    return found


async def follow(connection: Connection, tenant: TenantId, parents: Sequence[str]) -> None:
    """Have the ends of the runs of these jobs evaluated from now on."""
    await connection.execute(_SQL["follow_jobs"], tenant, parents)
    await follow_runs(connection, tenant, parents)  # its snapshot is newer than the locks


async def follow_runs(connection: Connection, tenant: TenantId, parents: Sequence[str]) -> None:
    await connection.execute(_SQL["follow_runs"], tenant, parents, _as_runs(parents))


async def hold_parents(connection: Connection, tenant: TenantId, parents: Sequence[str]) -> set[UUID]:
    """Lock the live runs of these jobs: no other transaction ends one until this one ends. Returns these runs."""
    rows = await connection.fetch(_SQL["hold_parents"], tenant, parents, _as_runs(parents))
    return {run_id for (run_id,) in rows}


def _as_runs(job_ids: Sequence[str]) -> list[UUID]:
    return [run_id for job_id in job_ids if (run_id := parse_uuid(job_id)) is not None]


async def insert_waits(connection: Connection, waits: Sequence[tuple[str, str]]) -> None:
    """What new runs wait for: (run, parent)."""
    await connection.execute(_SQL["insert_waits"], [run for run, _ in waits], [parent for _, parent in waits])


async def runs_to_poll(connection: Connection, after: UUID, limit: int) -> list[RunToPoll]:
    """Runs after `after` that must be polled: what they wait for is not known."""
    return await _to_look_at.fetch(connection, after, limit)


async def all_waiting(connection: Connection, after: UUID, limit: int) -> list[RunToPoll]:
    return await _all_waiting.fetch(connection, after, limit)


async def lock_waiting(connection: Connection, run_ids: Sequence[UUID]) -> list[DependantRun]:
    return await _lock_waiting.fetch(connection, run_ids)


async def waits_of(connection: Connection, run_ids: Sequence[UUID]) -> list[WaitRow]:
    return await _waits_of.fetch(connection, run_ids)


async def waits_to_poll(connection: Connection, run_ids: Sequence[UUID]) -> list[WaitRow]:
    """The waits whose parent has not ended."""
    return await _waits_to_look_at.fetch(connection, run_ids)


async def parents_now(
    connection: Connection, tenant: TenantId, waits: Sequence[WaitRow], fires: Sequence[datetime]
) -> list[ParentNow]:
    """The parents, in the order of `waits`. `fires` says when the parents fire for their times."""
    found = await _parents_now.fetch(
        connection,
        tenant,
        [wait.parent for wait in waits],
        [parse_uuid(wait.parent) for wait in waits],
        [wait.for_time for wait in waits],
        [wait.since for wait in waits],
        [first_uuid7(wait.for_time - _CLOCKS_DIFFER) for wait in waits],
        fires,
    )
    return sorted(found, key=lambda row: row.place)


async def write_waits(connection: Connection, waits: Sequence[WaitRow]) -> None:
    await connection.execute(
        _SQL["write_waits"],
        [wait.run_id for wait in waits],
        [wait.parent for wait in waits],
        [wait.looked for wait in waits],
        [wait.parent_run for wait in waits],
        [wait.parent_end for wait in waits],
        [wait.cause for wait in waits],
    )


async def delete_waits(connection: Connection, run_ids: Sequence[UUID], jobs: Sequence[JobKey] = ()) -> None:
    """Delete the waits of these runs. `jobs` are their jobs: the edges of jobs without a row are deleted too."""
    await connection.execute(_SQL["delete_waits"], run_ids, [key[0] for key in jobs], [key[1] for key in jobs])


async def ended_parents(connection: Connection, run_ids: Sequence[UUID]) -> list[EndedParent]:
    return await _ended_parents.fetch(connection, run_ids)


async def waiting_for(connection: Connection, ended: Sequence[EndedParent]) -> set[UUID] | None:
    """The runs that wait for one of these ends. None if they are too many to deal with at once."""
    rows = await connection.fetch(
        _SQL["waiting_for"],
        [run.run_id for run in ended],
        [run.tenant_id for run in ended],
        [run.job_id for run in ended],
        MOST_ROWS + 1,
    )
    return None if len(rows) > MOST_ROWS else {run_id for (run_id,) in rows}


async def poll_again(connection: Connection, parents: Sequence[JobKey]) -> int:
    """Have the runs that wait for these jobs polled again. Return how many there are. One statement changes at most
    `MOST_ROWS` of them."""
    keys, found = list(dict.fromkeys(parents)), 0
    tenants, jobs = [key[0] for key in keys], [key[1] for key in keys]
    while True:
        done: str = await connection.execute(_SQL["look_again"], tenants, jobs, MOST_ROWS)
        number = int(done.rpartition(" ")[2])
        found += number
        if number < MOST_ROWS:
            return found


async def results(connection: Connection, run_ids: Sequence[UUID]) -> dict[UUID, str | None]:
    """The results of ended runs, as JSON."""
    return dict(await connection.fetch(_SQL["results"], run_ids))


async def newest_successes(connection: Connection, tenant: TenantId, job_ids: Sequence[str]) -> dict[str, UUID]:
    own = [parse_uuid(job_id) for job_id in job_ids]
    return dict(await connection.fetch(_SQL["newest_successes"], tenant, job_ids, own))


async def after_children(connection: Connection, parents: Sequence[JobKey], behind: JobKey) -> list[JobKey]:
    """The next jobs behind one of them that fire after these, at most `MOST_ROWS`."""
    rows = await connection.fetch(
        _SQL["after_children"], [key[0] for key in parents], [key[1] for key in parents], *behind, MOST_ROWS
    )
    return [(TenantId(tenant), child) for tenant, child in rows]


async def lock_children(connection: Connection, children: Sequence[JobKey]) -> list[AfterChild]:
    return await _lock_children.fetch(connection, [key[0] for key in children], [key[1] for key in children])


async def satisfy(connection: Connection, ends: Sequence[tuple[AfterChild, EndedParent, int]]) -> None:
    """Record that these ends of parents count for these children."""
    await connection.execute(
        _SQL["satisfy_edges"],
        [child.tenant_id for child, _, _ in ends],
        [parent.job_id for _, parent, _ in ends],
        [child.job_id for child, _, _ in ends],
        [parent.run_id for _, parent, _ in ends],
        [end for _, _, end in ends],
    )


async def after_edges(connection: Connection, children: Sequence[JobKey]) -> list[AfterEdge]:
    return await _after_edges.fetch(connection, [key[0] for key in children], [key[1] for key in children])


async def set_due(connection: Connection, jobs: Sequence[JobKey]) -> int:
    """Let these jobs fire now, unless they are paused or due already. Return how many do."""
    done: str = await connection.execute(_SQL["set_due"], [key[0] for key in jobs], [key[1] for key in jobs])
    return int(done.rpartition(" ")[2])
