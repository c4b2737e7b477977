"""Reads runs, live and ended, and queues."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store import pages
from mainspring.store.counts import Count
from mainspring.store.jobs import contains
from mainspring.store.pool import Connection
from mainspring.store.queries import load, load_without_payloads
from mainspring.store.rows import PageRow, RowQuery, size_of

_SQL = load("history")
_LIGHT_SQL = load_without_payloads("history")


class RunRow(PageRow, frozen=True):
    """What live and ended runs have in common. `state` is a StoredState. `created_by`: the token that created the run
    or its job, whose name is `creator`."""

    run_id: UUID
    lane_id: int
    state: int
    attempt: int
    max_attempts: int
    fence: int
    scheduled_for: datetime
    fired_at: datetime | None
    cancel_requested_at: datetime | None
    worker_id: UUID | None
    node_id: UUID | None
    job_id: str | None
    trigger: str | None
    name: str | None
    payload_text: str | None
    spec_text: str | None
    losses: int
    snoozes: int
    generation: int
    created_by: UUID | None
    creator: str | None


class LiveRun(RunRow, frozen=True):
    """A run that has not ended. `started_at`: when its present attempt began, if that is known. `expires_at`: when it
    expires if it is not claimed before. `snoozed_until`: the end of its last snooze. `held_key`: the line in which it
    is HELD. `now` is the database's time at which the row was read."""

    ready_at: datetime
    claimed_at: datetime | None
    started_at: datetime | None
    deadline: datetime | None
    last_error: str | None
    progress: float | None
    progress_text: str | None
    expires_at: datetime | None
    snoozed_until: datetime | None
    held_key: int | None
    usage_text: str | None
    now: datetime

    @property
    def snoozed(self) -> bool:
        """Whether it waits, or has waited, because it asked to come back at `ready_at`."""
        return self.snoozed_until == self.ready_at

    @property
    def weight(self) -> int:
        return size_of(
            self.payload_text, self.spec_text, self.last_error, self.name, self.progress_text, self.usage_text
        )


class EndedRun(RunRow, frozen=True):
    """A run of the history. `payload_dropped`: it has succeeded and its payload was not kept."""

    started_at: datetime | None
    ended_at: datetime
    ran_ms: float | None
    reason: str | None
    error: str | None
    result_text: str | None
    payload_dropped: bool
    usage_text: str | None

    @property
    def weight(self) -> int:
        texts = (self.payload_text, self.spec_text, self.result_text, self.error, self.name, self.reason)
        return size_of(*texts, self.usage_text)


Run = LiveRun | EndedRun


class LaneDepth(msgspec.Struct, frozen=True):
    """How many runs of a lane wait for a worker, back off, are held by limits, and run. `oldest`: seconds for which
    the oldest has waited."""

    lane_id: int
    depth: int
    scheduled: int
    held: int
    running: int
    oldest: float | None


class LaneEnds(msgspec.Struct, frozen=True):
    """How many runs of a lane ended, and how."""

    lane_id: int
    ended: int = 0
    succeeded: int = 0
    failed: int = 0


class AttemptRow(msgspec.Struct, frozen=True):
    """An attempt that was followed by another one. `ready_at`: when the run was ready for the next attempt. `earlier`:
    how many attempts of the run were not read. `usage_text`: what its processes used, without samples."""

    attempt: int
    fence: int
    worker_id: UUID | None
    started_at: datetime | None
    ended_at: datetime
    outcome: str
    error: str | None
    ready_at: datetime | None
    earlier: int
    usage_text: str | None = None


_live_run = RowQuery(LiveRun, _SQL["live_run"])
_live_runs = RowQuery(LiveRun, _SQL["live_runs"])
_live_runs_of_job = RowQuery(LiveRun, _SQL["live_runs_of_job"])
_ended_run = RowQuery(EndedRun, _SQL["ended_run"])
_ended_runs = RowQuery(EndedRun, _SQL["ended_runs"])
_runs_between = RowQuery(EndedRun, _SQL["ended_runs_between"])
_ended_runs_of_job = RowQuery(EndedRun, _SQL["ended_runs_of_job"])
_live_rows = RowQuery(LiveRun, _LIGHT_SQL["live_runs"])
_live_rows_of_job = RowQuery(LiveRun, _LIGHT_SQL["live_runs_of_job"])
_ended_rows = RowQuery(EndedRun, _LIGHT_SQL["ended_runs"])
_rows_between = RowQuery(EndedRun, _LIGHT_SQL["ended_runs_between"])
_ended_rows_of_job = RowQuery(EndedRun, _LIGHT_SQL["ended_runs_of_job"])
_queue_depths = RowQuery(LaneDepth, _SQL["queue_depths"])
_ended_last_minute = RowQuery(LaneEnds, _SQL["ended_last_minute"])
_attempts_of = RowQuery(AttemptRow, _SQL["attempts_of"])


class RunFilter(msgspec.Struct, frozen=True):
    """The filter of `GET /v1/runs`. None means any. `own`: the run that is itself a one-time job. `created_by`:
    the name or id of a token. `within`: labels that all of them have, as JSON."""

    job_id: str | None = None
    own: UUID | None = None
    lane_ids: Sequence[int] | None = None
    live_states: Sequence[int] | None = None
    ended_states: Sequence[int] | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    label: tuple[str, str] | None = None
    payload: tuple[tuple[str, str], ...] = ()
    generation: int | None = None
    worker_id: UUID | None = None
    created_by: str | None = None
    within: str | None = None


async def live_run(connection: Connection, tenant: TenantId, run_id: UUID) -> LiveRun | None:
    return await _live_run.first(connection, tenant, run_id)


async def ended_run(connection: Connection, tenant: TenantId, run_id: UUID) -> EndedRun | None:
    return await _ended_run.first(connection, tenant, run_id)


async def find_run(connection: Connection, tenant: TenantId, run_id: UUID) -> Run | None:
    """The run, live or ended. It can end between the two queries, but an ended run never becomes live again."""
    return await live_run(connection, tenant, run_id) or await ended_run(connection, tenant, run_id)


async def live_runs(
    connection: Connection,
    tenant: TenantId,
    chosen: RunFilter,
    before: UUID | None,
    limit: int,
    floor: UUID | None = None,
    *,
    light: bool = False,
) -> list[LiveRun]:
    """Newest first, before `before` and down to `floor`. `light`: without payloads."""
    arguments = wanted(tenant, chosen, chosen.live_states, before)
    query, straight = _live_rows if light else _live_runs, floor is not None or chosen == RunFilter()
    return await pages.read(connection, query, *arguments, floor, limit, straight=straight)


async def ended_runs(
    connection: Connection,
    tenant: TenantId,
    chosen: RunFilter,
    before: UUID | None,
    limit: int,
    floor: UUID | None = None,
    *,
    light: bool = False,
) -> list[EndedRun]:
    arguments = wanted(tenant, chosen, chosen.ended_states, before)
    straight = floor is not None or chosen == RunFilter(job_id=chosen.job_id, own=chosen.own)
    query = _ended_rows if light else _ended_runs
    return await pages.read(connection, query, *arguments, floor, limit, straight=straight)


async def ended_between(
    connection: Connection,
    tenant: TenantId,
    chosen: RunFilter,
    before: UUID | None,
    span: tuple[datetime, datetime],
    limit: int,
    *,
    light: bool = False,
) -> list[EndedRun]:
    """The newest runs that ended within `span`. Raises SearchTooSlow."""
    arguments = wanted(tenant, chosen, chosen.ended_states, before)
    query = _rows_between if light else _runs_between
    return await pages.read(connection, query, *arguments, *span, limit, by_time=True)


def wanted(
    tenant: TenantId, chosen: RunFilter, states: Sequence[int] | None, before: UUID | None = None
) -> tuple[Any, ...]:
    """The arguments of the fragments wanted_live_run and wanted_ended_run."""
    return (
        tenant, before, chosen.job_id, chosen.lane_ids, states, contains(chosen.error), chosen.since, chosen.until,
        chosen.own, chosen.created_after, chosen.created_before, *_values_of(chosen), chosen.generation,
        chosen.worker_id, chosen.created_by, chosen.within,
    )  # fmt: skip


def _values_of(chosen: RunFilter) -> tuple[list[str], list[str]] | tuple[None, None]:
    """The paths in the spec of the label and of values of the payload, as array literals, and the values."""
    wanted = [(("labels", chosen.label[0]), chosen.label[1])] if chosen.label is not None else []
    wanted += [(("found_by", path), value) for path, value in chosen.payload]
    if not wanted:
        return None, None
    return [_array_literal(path) for path, _ in wanted], [value for _, value in wanted]


def _array_literal(names: Sequence[str]) -> str:
    quoted = (name.replace("\\", "\\\\").replace('"', '\\"') for name in names)
    return "{" + ",".join(f'"{name}"' for name in quoted) + "}"


def count_live(tenant: TenantId, chosen: RunFilter) -> Count:
    """How many live runs match."""
    return Count(_SQL["count_live_runs"], wanted(tenant, chosen, chosen.live_states))


def count_ended(tenant: TenantId, chosen: RunFilter) -> Count:
    return Count(_SQL["count_ended_runs"], wanted(tenant, chosen, chosen.ended_states))


async def runs_of_job(
    connection: Connection,
    tenant: TenantId,
    job_id: str,
    before: UUID | None,
    limit: int,
    generation: int | None = None,
    *,
    light: bool = False,
) -> list[Run]:
    """Newest first, live and ended, of one generation or of all. `light`: without payloads and results. Clients that
    wait for a job ask repeatedly for the newest run only."""
    arguments = (tenant, job_id, before, generation, limit)
    live = await pages.read(connection, _live_rows_of_job if light else _live_runs_of_job, *arguments)
    straight = limit > 1 and generation is None
    past = _ended_rows_of_job if light else _ended_runs_of_job
    ended = await pages.read(connection, past, *arguments, straight=straight)
    return newest_first([*live, *ended], limit)


def newest_first(rows: Sequence[Run], limit: int) -> list[Run]:
    """Merge the runs by run_id, newest first. A run that ended between two queries is in both lists, and counts as
    ended."""
    distinct = {row.run_id: row for row in sorted(rows, key=lambda row: isinstance(row, EndedRun))}
    return [distinct[run_id] for run_id in sorted(distinct, reverse=True)][:limit]


async def queue_depths(connection: Connection, tenant: TenantId) -> list[LaneDepth]:
    return await _queue_depths.fetch(connection, tenant)


async def ended_last_minute(connection: Connection, tenant: TenantId) -> list[LaneEnds]:
    """How many runs of each lane ended within the last minute."""
    return await _ended_last_minute.fetch(connection, tenant)


async def attempts_of(connection: Connection, run_id: UUID) -> list[AttemptRow]:
    return await _attempts_of.fetch(connection, run_id)


async def last_attempts(connection: Connection, run_ids: Sequence[UUID]) -> dict[UUID, datetime]:
    """When the last attempt of each of these runs ended that another attempt follows."""
    return dict(await connection.fetch(_SQL["last_attempts"], run_ids))


async def worker_names(connection: Connection, worker_ids: Sequence[UUID]) -> dict[UUID, str]:
    return dict(await connection.fetch(_SQL["worker_names"], worker_ids))


async def ahead_of(connection: Connection, lane_id: int, ready_at: datetime) -> int:
    count: int = await connection.fetchval(_SQL["ahead_of"], lane_id, ready_at)
    return count
