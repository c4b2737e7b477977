"""Live runs: create, claim, report, cancel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from uuid import UUID

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store import arrays
from mainspring.store.claimed_runs import ClaimedRun
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("runs")
_ready_at = attrgetter("ready_at")

# run_id, follows, the slots and gates that the run held, and the joins that count it; records without conversion, for
# the hot path
EndedRow = tuple[UUID, int | None, list[int] | None, list[int] | None]
# That of a run that has not succeeded: also its tenant and its job
OtherEnd = tuple[UUID, int | None, list[int] | None, list[int] | None, TenantId, str | None]

# For each lane: the gate of its queue and what may pass it, the same of its tenant, and the gates that a run owns.
GateColumns = tuple[
    Sequence[int | None], Sequence[int | None], Sequence[int | None], Sequence[int | None], Sequence[str | None]
]


class NewRuns:
    """The columns of runs to insert. The statement takes one array per column."""

    __slots__ = ("generations", "job_ids", "lane_ids", "max_attempts", "names", "payloads", "run_ids", "specs")

    def __init__(self) -> None:
        self.run_ids: list[str] = []
        self.lane_ids: list[int] = []
        self.max_attempts: list[int] = []
        self.job_ids: list[str | None] = []
        self.names: list[str | None] = []
        self.payloads: list[str | None] = []
        self.specs: list[str | None] = []
        self.generations: list[int] = []

    @property
    def columns(self) -> tuple[Sequence[object], ...]:
        """The arguments of the statements that insert them, in order."""
        return (
            self.run_ids, self.lane_ids, self.max_attempts, self.job_ids, self.names, self.payloads, self.specs,
            self.generations,
        )  # fmt: skip


class HeldRun(msgspec.Struct, frozen=True):
    """A locked RUNNING run, with the columns that decide what follows its attempt. `started_at`: when the attempt
    began, if its worker has told so."""

    run_id: UUID
    fence: int
    attempt: int
    max_attempts: int
    cancel_requested_at: datetime | None
    claimed_at: datetime | None
    worker_id: UUID
    spec_text: str | None
    time_left: float | None
    losses: int = 0
    exclusive: bool = False
    started_at: datetime | None = None
    snoozes: int = 0
    gates: list[int] | None = None
    limited: bool = False
    cancel_reason: str | None = None


class LockedRun(msgspec.Struct, frozen=True):
    """A run that has not ended, locked. `attempt`: how many attempts it has had. `begun`: whether it has a time of
    start. A workflow run and a mapped step have one, and wait. `container`: it is a workflow run that has started."""

    run_id: UUID
    state: int
    fence: int
    attempt: int
    held_key: int | None = None
    begun: bool = False
    container: bool = False


class OverdueRun(msgspec.Struct, frozen=True):
    """A locked waiting run whose time is over. `because`: the field of its job that sets this time."""

    run_id: UUID
    fence: int
    attempt: int
    state: int
    because: str
    spec_text: str | None
    held_key: int | None = None
    container: bool = False


class RequeuedRun(msgspec.Struct, frozen=True):
    run_id: UUID
    lane_id: int


_claim_from_lane = RowQuery(ClaimedRun, _SQL["claim_from_lane"])
_claim_from_lanes = RowQuery(ClaimedRun, _SQL["claim_from_lanes"])
_claim_fairly = RowQuery(ClaimedRun, _SQL["claim_fairly"])
_claim_through_gates = RowQuery(ClaimedRun, _SQL["claim_through_gates"])
_redeliver = RowQuery(ClaimedRun, _SQL["redeliver"])
_lock_reported = RowQuery(HeldRun, _SQL["lock_reported"])
_runs_held_by = RowQuery(HeldRun, _SQL["runs_held_by"])
_lock_run = RowQuery(LockedRun, _SQL["lock_run"])
_lock_runs_of_job = RowQuery(LockedRun, _SQL["lock_runs_of_job"])
_lock_overlapping = RowQuery(LockedRun, _SQL["lock_overlapping"])
_overdue = RowQuery(OverdueRun, _SQL["overdue"])
_requeue = RowQuery(RequeuedRun, _SQL["requeue"])


class Ending(msgspec.Struct, frozen=True):
    """An end that is not SUCCESS. `before` is the state that the caller saw under its lock. `held_ms`: None if the
    worker has not reported when the attempt began. `lost` is 1 if the attempt was lost with its worker. `cause`: the
    step whose failure is the reason that it was not run."""

    run_id: UUID
    fence: int
    state: int
    reason: str | None
    error: str | None
    before: int
    ran_ms: float | None = None
    held_ms: float | None = None
    attempt: int = 0
    lost: int = 0
    cause: str | None = None
    usage: str | None = None


class Requeue(msgspec.Struct, frozen=True):
    """A run that goes back into its lane after `delay` seconds. `given_back` is 1 if no attempt was used. `lost` is 1
    if the attempt was lost with its worker, and `snoozed` if it asked to come back later; the run then gets another
    attempt for it. `alone`: the next attempt is to begin without neighbours."""

    run_id: UUID
    fence: int
    delay: float
    given_back: int = 0
    error: str | None = None
    lost: int = 0
    snoozed: int = 0
    alone: bool = False


class PastAttempt(msgspec.Struct, frozen=True):
    """An attempt that is followed by another one after `delay` seconds: FAILED, LOST, SNOOZED, or RETURNED
    unstarted."""

    run_id: UUID
    attempt: int
    fence: int
    worker_id: UUID | None
    started_at: datetime | None
    outcome: str
    error: str | None
    delay: float = 0.0
    usage: str | None = None


async def insert(
    connection: Connection, tenant: TenantId, new: NewRuns, *, waiting: bool = False, created_by: UUID | None = None
) -> None:
    """`waiting`: their jobs depend on others."""
    await connection.execute(
        _SQL["insert_waiting_runs"] if waiting else _SQL["insert_runs"],
        tenant,
        *new.columns,
        created_by,
    )


class NewHeldRuns(NewRuns):
    """Runs that have limits: also the lines in which they stand, and how far their priority moves them forward."""

    __slots__ = ("boosts", "lines")

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[list[int]] = []
        self.boosts: list[float | None] = []


async def insert_held(
    connection: Connection, tenant: TenantId, new: NewHeldRuns, created_by: UUID | None = None
) -> None:
    """Insert runs that have limits. They are HELD."""
    await connection.execute(
        _SQL["insert_held_runs"],
        tenant,
        *new.columns,
        ["{" + ",".join(map(str, lines)) + "}" for lines in new.lines],
        new.boosts,
        created_by,
    )


async def insert_plain(
    connection: Connection,
    tenant: TenantId,
    lane_id: int,
    max_attempts: int,
    run_ids: Sequence[str],
    payloads: Sequence[str | None],
    created_by: UUID | None = None,
) -> None:
    """Insert runs of one lane that have only a payload."""
    ids = arrays.of_uuid_texts(run_ids)
    await connection.execute(_SQL["insert_plain_runs"], tenant, lane_id, max_attempts, ids, payloads, created_by)


async def stored_ids(
    connection: Connection, tenant: TenantId, run_ids: Sequence[str], job_ids: Sequence[str]
) -> list[str]:
    """Those that exist."""
    rows = await connection.fetch(_SQL["stored_ids"], tenant, run_ids, job_ids)
    return [row["id"] for row in rows]


async def ended_ids(connection: Connection, tenant: TenantId, run_ids: Sequence[str]) -> list[str]:
    rows = await connection.fetch(_SQL["ended_ids"], tenant, run_ids)
    return [row["id"] for row in rows]


async def claim(
    connection: Connection,
    lanes: Sequence[tuple[int, int, datetime]],
    limit: int,
    worker_id: UUID,
    seq: int,
) -> list[ClaimedRun]:
    """Claim up to `limit` runs. `lanes` are (lane, priority, lower bound). Runs of one lane come oldest first."""
    if len(lanes) == 1:
        lane_id, _, bound = lanes[0]
        claimed = await _claim_from_lane.fetch(connection, lane_id, limit, worker_id, seq, bound)
        claimed.sort(key=_ready_at)  # an update by ctid returns rows in the order of the table's pages
        return claimed
    return await _claim_from_lanes.fetch(
        connection,
        [lane[0] for lane in lanes],
        limit,
        worker_id,
        seq,
        [lane[2] for lane in lanes],
        [lane[1] for lane in lanes],
    )


async def claim_fairly(
    connection: Connection,
    lanes: Sequence[tuple[int, int, datetime]],
    parties: Sequence[int],
    starts: Mapping[int, int],
    limit: int,
    worker_id: UUID,
    seq: int,
) -> list[ClaimedRun]:
    """Claim up to `limit` runs of several parties, in no particular order. `lanes` are (lane, priority, lower bound).
    `parties` are the tenants of the lanes, or their queues. `starts` are their virtual times (see
    domain/fairness.py)."""
    return await _claim_fairly.fetch(
        connection,
        [lane[0] for lane in lanes],
        limit,
        worker_id,
        seq,
        [lane[2] for lane in lanes],
        [lane[1] for lane in lanes],
        parties,
        [starts[party] for party in parties],
    )


async def claim_through_gates(
    connection: Connection,
    lanes: Sequence[tuple[int, int, datetime]],
    parties: Sequence[int],
    starts: Mapping[int, int],
    limit: int,
    worker_id: UUID,
    seq: int,
    gates: GateColumns,
) -> list[ClaimedRun]:
    """As claim_fairly, where gates limit how many runs pass. The caller has locked them. Oldest first."""
    claimed = await _claim_through_gates.fetch(
        connection,
        [lane[0] for lane in lanes],
        limit,
        worker_id,
        seq,
        [lane[2] for lane in lanes],
        [lane[1] for lane in lanes],
        parties,
        [starts[party] for party in parties],
        *gates,
    )
    claimed.sort(key=_ready_at)
    return claimed


async def ready_lanes(connection: Connection, lanes: Sequence[tuple[int, datetime]]) -> list[int]:
    """Which of these (lane, lower bound) have runs to claim now."""
    rows = await connection.fetch(_SQL["ready_lanes"], [lane[0] for lane in lanes], [lane[1] for lane in lanes])
    return [row["lane_id"] for row in rows]


async def redeliver(
    connection: Connection, worker_id: UUID, seq: int, held: Sequence[UUID], limit: int
) -> list[ClaimedRun]:
    return await _redeliver.fetch(connection, worker_id, seq, held, limit)


async def report_successes(
    connection: Connection,
    worker_id: UUID,
    run_ids: Sequence[UUID],
    fences: Sequence[int],
    held_ms: Sequence[float],
    ran_ms: Sequence[float],
    results: Sequence[str | None],
    usages: Sequence[str | None] = (),
) -> list[EndedRow]:
    """Move succeeded runs to the history. Return those that matched run, fence and incarnation. Without `results` or
    `usages`, none of them has any."""
    rows: list[EndedRow] = await connection.fetch(
        _SQL["report_successes"],
        arrays.of_uuids(run_ids),
        arrays.of_ints(fences),
        held_ms,
        ran_ms,
        results,
        worker_id,
        usages,
    )
    return rows


async def lock_reported(
    connection: Connection, worker_id: UUID, run_ids: Sequence[UUID], fences: Sequence[int]
) -> list[HeldRun]:
    return await _lock_reported.fetch(connection, run_ids, fences, worker_id)


async def free_to_report(connection: Connection, run_ids: Sequence[UUID]) -> set[UUID]:
    """Which of these runs no other transaction has locked. They are locked, if they are still there."""
    return {row["run_id"] for row in await connection.fetch(_SQL["free_to_report"], run_ids)}


async def requeue(
    connection: Connection, items: Sequence[Requeue], ended_at: datetime | None = None
) -> list[RequeuedRun]:
    """Put runs back into their lanes. Return those that matched. `ended_at`: the end of their attempts; None: now."""
    ordered = sorted(items, key=lambda item: item.run_id)
    return await _requeue.fetch(
        connection,
        [item.run_id for item in ordered],
        [item.fence for item in ordered],
        [item.delay for item in ordered],
        [item.given_back for item in ordered],
        [item.error for item in ordered],
        [item.lost for item in ordered],
        [item.snoozed for item in ordered],
        [item.alone or None for item in ordered],
        ended_at,
    )


async def end(connection: Connection, endings: Sequence[Ending]) -> list[OtherEnd]:
    """Move runs to the history with an end other than SUCCESS. Return those that matched."""
    ordered = sorted(endings, key=lambda item: item.run_id)
    rows: list[OtherEnd] = await connection.fetch(
        _SQL["end_runs"],
        [item.run_id for item in ordered],
        [item.fence for item in ordered],
        [item.state for item in ordered],
        [item.reason for item in ordered],
        [item.error for item in ordered],
        [item.ran_ms for item in ordered],
        [item.before for item in ordered],
        [item.held_ms for item in ordered],
        [item.lost for item in ordered],
        [item.usage for item in ordered],
    )
    return rows


async def record_attempts(connection: Connection, attempts: Sequence[PastAttempt]) -> datetime:
    """Return when they ended. They all ended at the same moment: when their outcomes arrived."""
    ended_at: datetime = await connection.fetchval(
        _SQL["insert_attempts"],
        [item.run_id for item in attempts],
        [item.attempt for item in attempts],
        [item.fence for item in attempts],
        [item.worker_id for item in attempts],
        [item.started_at for item in attempts],
        [item.outcome for item in attempts],
        [item.error for item in attempts],
        [item.delay for item in attempts],
        [item.usage for item in attempts],
    )
    return ended_at


async def reported_before(
    connection: Connection,
    worker_id: UUID,
    run_ids: Sequence[UUID],
    fences: Sequence[int],
    statuses: Sequence[str],
) -> set[UUID]:
    rows = await connection.fetch(_SQL["reported_before"], run_ids, fences, worker_id, statuses)
    return {row["run_id"] for row in rows}


async def to_stop(connection: Connection, worker_ids: Sequence[UUID]) -> dict[UUID, list[UUID]]:
    """The runs that each of these workers has to stop; without workers that have none."""
    found: dict[UUID, list[UUID]] = {}
    for row in await connection.fetch(_SQL["to_stop"], worker_ids):
        found.setdefault(row["worker_id"], []).append(row["run_id"])
    return found


async def lock_run(connection: Connection, tenant: TenantId, run_id: UUID) -> LockedRun | None:
    return await _lock_run.first(connection, tenant, run_id)


async def lock_runs_of_job(connection: Connection, tenant: TenantId, job_id: str) -> list[LockedRun]:
    return await _lock_runs_of_job.fetch(connection, tenant, job_id)


async def lock_overlapping(connection: Connection, tenant: TenantId, job_id: str) -> list[LockedRun]:
    """The live runs of a job that its overlap rule is about: all but those of backfills."""
    return await _lock_overlapping.fetch(connection, tenant, job_id)


async def request_cancels(
    connection: Connection, running: Sequence[tuple[UUID, int]], reason: str | None = None, follows: int = 0
) -> set[UUID]:
    """The workers that must stop these runs (run, fence), without those of which a cancel was requested before.
    `reason`: why they are CANCELLED then; None: on request. `follows`: what follows their ends besides."""
    rows = await connection.fetch(
        _SQL["request_cancels"], [run_id for run_id, _ in running], [fence for _, fence in running], reason, follows
    )
    return {worker_id for (worker_id,) in rows}


async def held_by(connection: Connection, worker_id: UUID, limit: int, *, ordinary_only: bool = False) -> list[HeldRun]:
    """Runs of this worker that no other transaction has locked. They are locked."""
    return await _runs_held_by.fetch(connection, worker_id, limit, ordinary_only)


async def overdue(connection: Connection, limit: int) -> list[OverdueRun]:
    return await _overdue.fetch(connection, limit)
