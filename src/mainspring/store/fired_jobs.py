"""One-time jobs that have fired. They have no jobs row any more: their runs, live or ended, say what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.domain.transitions import StoredState
from mainspring.kernel.ids import TenantId
from mainspring.store import pages
from mainspring.store.history import EndedRun, LiveRun, Run, newest_first
from mainspring.store.jobs import contains
from mainspring.store.pool import Connection
from mainspring.store.queries import load, load_without_payloads
from mainspring.store.rows import RowQuery

_SQL = load("fired_jobs")
_LIGHT_SQL = load_without_payloads("fired_jobs")

RANKS = {"CANCELLED": 1, "SCHEDULED": 2, "RUNNING": 3}  # live_rank in sql/fragments.sql
_ERROR = 2000  # characters of an error in a list


class BriefRun(msgspec.Struct, frozen=True):
    """What a job shows of its latest run. `ready_at` is null if it has ended, `ended_at` is null if it has not."""

    run_id: UUID
    job_id: str | None
    state: int
    attempt: int
    max_attempts: int
    losses: int
    snoozes: int
    scheduled_for: datetime
    fired_at: datetime | None
    cancel_requested_at: datetime | None
    worker_id: UUID | None
    trigger: str | None
    generation: int
    ready_at: datetime | None
    snoozed_until: datetime | None
    claimed_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    ran_ms: float | None
    reason: str | None
    error: str | None
    now: datetime

    @property
    def snoozed(self) -> bool:
        return self.ready_at is not None and self.snoozed_until == self.ready_at


class FiredFilter(msgspec.Struct, frozen=True):
    """The filter of `GET /v1/jobs` for one-time jobs that have fired. `ranks`: which live ones. `states`: which ended
    ones, by the stored state of the run. `created_from` and `created_until` are compared with generated ids."""

    ranks: Sequence[int]
    states: Sequence[int]
    lane_ids: Sequence[int] | None = None
    owner: str | None = None
    label: tuple[str, str] | None = None
    text: str | None = None
    created_from: UUID | None = None
    created_until: UUID | None = None
    created_by: str | None = None
    within: str | None = None

    @property
    def held_only(self) -> bool:
        return RANKS["SCHEDULED"] not in self.ranks

    @property
    def unsuccessful_only(self) -> bool:
        return StoredState.SUCCESS not in self.states


class TakenId(msgspec.Struct, frozen=True):
    """A chosen id: its newest generation, and when that began."""

    job_id: str
    taken_at: datetime
    generation: int


_live = RowQuery(LiveRun, _SQL["live"])
_held = RowQuery(LiveRun, _SQL["held"])
_ended = RowQuery(EndedRun, _SQL["ended"])
_unsuccessful = RowQuery(EndedRun, _SQL["unsuccessful"])
_LIGHT = {
    _live: RowQuery(LiveRun, _LIGHT_SQL["live"]),
    _held: RowQuery(LiveRun, _LIGHT_SQL["held"]),
    _ended: RowQuery(EndedRun, _LIGHT_SQL["ended"]),
    _unsuccessful: RowQuery(EndedRun, _LIGHT_SQL["unsuccessful"]),
}
_deciding_live = RowQuery(LiveRun, _SQL["deciding_live"])
_deciding_ended = RowQuery(EndedRun, _SQL["deciding_ended"])
_fire_live = RowQuery(LiveRun, _SQL["fire_live"])
_fire_ended = RowQuery(EndedRun, _SQL["fire_ended"])
_newest_runs = RowQuery(BriefRun, _SQL["newest_runs"])
_taken = RowQuery(TakenId, _SQL["taken_at"])


async def page(
    connection: Connection,
    tenant: TenantId,
    chosen: FiredFilter,
    before: UUID | None,
    floor: UUID | None,
    limit: int,
    *,
    light: bool = False,
) -> list[Run]:
    """The deciding runs of jobs, newest first, before `before` and down to `floor`. `light`: without payloads. The
    caller has one snapshot."""
    label = chosen.label or (None, None)
    found: list[Run] = []
    for query, states, straight in (
        (_held if chosen.held_only else _live, chosen.ranks, not chosen.held_only),
        (_unsuccessful if chosen.unsuccessful_only else _ended, chosen.states, True),
    ):
        if states:
            found += await pages.read(
                connection,
                _LIGHT[query] if light else query,  # type: ignore[arg-type]
                tenant,
                before,
                floor,
                chosen.lane_ids,
                states,
                chosen.owner,
                *label,
                contains(chosen.text),
                chosen.created_from,
                chosen.created_until,
                chosen.created_by,
                chosen.within,
                limit,
                straight=straight,
            )
    return newest_first(found, limit)


async def boundary(connection: Connection, chosen: FiredFilter, before: UUID | None, count: int) -> UUID | None:
    """The run down to which `count` runs, of all tenants, come after `before`. None if there are fewer."""
    queries = []
    if chosen.ranks and not chosen.held_only:
        queries.append(_SQL["live_boundary"])
    if chosen.states:
        queries.append(_SQL["unsuccessful_boundary"] if chosen.unsuccessful_only else _SQL["ended_boundary"])
    found = [await pages.place(connection, query, before, count) for query in queries]
    return max((row["run_id"] for row in found if row is not None), default=None)


async def deciding_live(connection: Connection, tenant: TenantId, job_id: str, generation: int) -> LiveRun | None:
    return await _deciding_live.first(connection, tenant, job_id, generation)


async def deciding_ended(
    connection: Connection, tenant: TenantId, job_id: str, generation: int, *, overlapped: bool
) -> EndedRun | None:
    return await _deciding_ended.first(connection, tenant, job_id, generation, overlapped)


async def fire_of(connection: Connection, tenant: TenantId, job_id: str, generation: int) -> Run | None:
    """The run that the schedule of a generation of a one-time job with a chosen id made."""
    live = await _fire_live.first(connection, tenant, job_id, generation)
    return live or await _fire_ended.first(connection, tenant, job_id, generation)


async def newest_runs(
    connection: Connection, tenant: TenantId, job_ids: Sequence[str], generations: Sequence[int]
) -> dict[str, BriefRun]:
    """The newest run of each job, by job_id, if it is of this generation of the job."""
    rows = await _newest_runs.fetch(connection, tenant, job_ids, generations)
    return {row.job_id: with_cut_error(row) for row in rows if row.job_id is not None}


async def taken_ids(connection: Connection, tenant: TenantId, job_ids: Sequence[str]) -> dict[str, TakenId]:
    """The ids among these that clients chose. Generated ids are left out."""
    return {taken.job_id: taken for taken in await _taken.fetch(connection, tenant, job_ids)}


def brief_of(run: Run) -> BriefRun:
    """The brief form of a run that was read as a whole."""
    return BriefRun(
        run_id=run.run_id,
        job_id=run.job_id,
        state=run.state,
        attempt=run.attempt,
        max_attempts=run.max_attempts,
        losses=run.losses,
        snoozes=run.snoozes,
        scheduled_for=run.scheduled_for,
        fired_at=run.fired_at,
        cancel_requested_at=run.cancel_requested_at,
        worker_id=run.worker_id,
        trigger=run.trigger,
        generation=run.generation,
        ready_at=None if isinstance(run, EndedRun) else run.ready_at,
        snoozed_until=None if isinstance(run, EndedRun) else run.snoozed_until,
        claimed_at=None if isinstance(run, EndedRun) else run.claimed_at,
        started_at=run.started_at,
        ended_at=run.ended_at if isinstance(run, EndedRun) else None,
        ran_ms=run.ran_ms if isinstance(run, EndedRun) else None,
        reason=run.reason if isinstance(run, EndedRun) else None,
        error=run.error if isinstance(run, EndedRun) else run.last_error,
        now=run.ended_at if isinstance(run, EndedRun) else run.now,
    )


def with_cut_error(run: BriefRun) -> BriefRun:
    """The run as a list shows it."""
    if run.error is None or len(run.error) <= _ERROR:
        return run
    return msgspec.structs.replace(run, error=run.error[:_ERROR] + " [the rest is left out]")
