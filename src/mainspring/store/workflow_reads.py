"""Reads workflow runs for people: their steps, members and counts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store import fanouts
from mainspring.store.fired_jobs import BriefRun
from mainspring.store.history import EndedRun
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery
from mainspring.store.workflows import Flow

_SQL = load("workflow_reads")


class KeptEnd(msgspec.Struct, frozen=True):
    """How a step run or a workflow run has ended."""

    run_id: UUID
    state: int
    ended_at: datetime
    reason: str | None


class RerunRow(msgspec.Struct, frozen=True):
    """A rerun: the places of the steps that ran again, with numbers from first_number on in this order."""

    rerun: int
    first_number: int
    steps: list[int]
    container: UUID


class MapRow(msgspec.Struct, frozen=True):
    """The members of a mapped step. total, first_number: null before they are known. expanded: how many of them have a
    run, also those that have succeeded before. repeats: how many run again; None: all."""

    run_id: UUID
    total: int | None
    expanded: int
    first_number: int | None
    repeats: int | None
    ok: int
    failed: int
    skipped: int


_runs_by_id = RowQuery(BriefRun, _SQL["runs_by_id"])
_kept_flow_run = RowQuery(EndedRun, _SQL["kept_flow_run"])
_kept_ends = RowQuery(KeptEnd, _SQL["kept_ends"])
_reruns = RowQuery(RerunRow, _SQL["reruns_of_flow"])
_flows = RowQuery(Flow, _SQL["flows_by_id"])
_map_progress = RowQuery(MapRow, _SQL["map_progress"])


async def runs(connection: Connection, tenant: TenantId, run_ids: Sequence[UUID]) -> dict[UUID, BriefRun]:
    """These runs, live or ended. The caller has one snapshot."""
    return {run.run_id: run for run in await _runs_by_id.fetch(connection, tenant, run_ids)}


async def ends(connection: Connection, run_ids: Sequence[UUID]) -> dict[UUID, KeptEnd]:
    """How step runs have ended, also those that are no longer in the history."""
    return {end.run_id: end for end in await _kept_ends.fetch(connection, run_ids)}


async def kept_run(connection: Connection, tenant: TenantId, flow_id: UUID) -> EndedRun | None:
    """A workflow run that has left the history, from what is kept of it."""
    return await _kept_flow_run.first(connection, tenant, flow_id)


async def reruns(connection: Connection, flow_id: UUID) -> list[RerunRow]:
    """Oldest first."""
    return await _reruns.fetch(connection, flow_id)


async def flows(connection: Connection, tenant: TenantId, flow_ids: Sequence[UUID]) -> dict[UUID, Flow]:
    """The workflow runs among these that were started."""
    return {flow.flow_id: flow for flow in await _flows.fetch(connection, tenant, flow_ids)}


async def count(connection: Connection, first: UUID, last: UUID, without: Sequence[UUID]) -> dict[int, int]:
    """How many step runs are in each state, as it is shown."""
    return dict(await connection.fetch(_SQL["count_steps"], first, last, without))


async def queued(connection: Connection, first: UUID, last: UUID) -> dict[int, int]:
    """How many queued step runs are in each lane."""
    return dict(await connection.fetch(_SQL["queued_steps"], first, last))


async def maps(connection: Connection, run_ids: Sequence[UUID]) -> dict[UUID, MapRow]:
    """The members of those of these step runs that are mapped and were ready."""
    return {row.run_id: row for row in await _map_progress.fetch(connection, run_ids)}


async def member_index(connection: Connection, flow_id: UUID, place: int, number: int) -> int | None:
    """The index of a member, by the number of its run and the place of its step."""
    row = await connection.fetchrow(_SQL["member_index"], flow_id, place, number)
    if row is None or row["repeats"] is None:
        return None if row is None else row["place"]
    return await fanouts.index_at(connection, row["run_id"], row["place"])
