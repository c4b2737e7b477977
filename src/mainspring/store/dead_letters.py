"""Dead letters: list, replay and discard. Also the replays of ended runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.kernel.ids import TenantId, parse_uuid
from mainspring.store import jobs, pages
from mainspring.store.counts import Count
from mainspring.store.jobs import contains
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import PageRow, RowQuery, size_of

_SQL = load("dead_letters")
EXACT_TO = 100_000  # more are not counted but estimated


class DeadLetterRow(PageRow, frozen=True):
    """A run that failed for good."""

    run_id: UUID
    lane_id: int
    job_id: str | None
    name: str | None
    attempts: int
    error: str | None
    reason: str | None
    trigger: str | None
    scheduled_for: datetime
    died_at: datetime
    payload_text: str | None
    generation: int

    @property
    def weight(self) -> int:
        return size_of(self.payload_text, self.error, self.name, self.reason)


class Size(msgspec.Struct, frozen=True):
    number: int
    estimated: bool = False


class DeadLetterId(PageRow, frozen=True):
    run_id: UUID


class LockedLetter(msgspec.Struct, frozen=True):
    """A dead letter that the transaction has locked. Payload and spec are set only if they were requested.
    overlap: the rule in the spec, which is that of a one-time job. None is the default."""

    run_id: UUID
    job_id: str | None
    generation: int
    lane_id: int
    name: str | None
    payload_text: str | None
    spec_text: str | None
    overlap: int | None
    attempts: int


class AllowedRun(msgspec.Struct, frozen=True):
    """Whether a job, locked by the caller, allows another run: its overlap rule, its status and its live runs."""

    job_id: str
    one_at_a_time: bool
    cancelled: bool
    alive: bool
    one_time: bool
    id_generated: bool
    overlap: int


class NewRun(msgspec.Struct, frozen=True):
    """A run that repeats another one. `held_key`: the line in which it is HELD."""

    run_id: UUID
    lane_id: int
    held_key: int | None


_page = RowQuery(DeadLetterRow, _SQL["page"])
_some = RowQuery(DeadLetterId, _SQL["some"])
_get = RowQuery(DeadLetterRow, _SQL["get"])
_count = RowQuery(Size, _SQL["count"])
_lock = RowQuery(LockedLetter, _SQL["lock"])
_allowed = RowQuery(AllowedRun, _SQL["allowed"])
_replay = RowQuery(NewRun, _SQL["replay"])
_repeat = RowQuery(NewRun, _SQL["repeat"])


class DeadLetterFilter(msgspec.Struct, frozen=True):
    """A filter for dead letters. None means any. `since` and `until` refer to the time at which the run failed.
    `within`: labels that all of them have, as JSON."""

    job_id: str | None = None
    lane_ids: Sequence[int] | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    within: str | None = None


class Replay(msgspec.Struct, frozen=True):
    """A run to repeat. `changed`: the payload and spec (JSON text) that replace its own."""

    run_id: UUID
    replay_id: UUID
    exclusive: bool
    changed: tuple[str | None, str | None] | None = None


async def page(
    connection: Connection, tenant: TenantId, chosen: DeadLetterFilter, before: UUID | None, limit: int
) -> list[DeadLetterRow]:
    """Newest first."""
    return await pages.read(
        connection,
        _page,
        tenant,
        before,
        chosen.job_id,
        chosen.lane_ids,
        contains(chosen.error),
        chosen.since,
        chosen.until,
        chosen.within,
        limit,
        straight=chosen == DeadLetterFilter(),
    )


async def some(
    connection: Connection, tenant: TenantId, chosen: DeadLetterFilter, after: UUID | None, begun: datetime, limit: int
) -> list[UUID]:
    """The next ids after `after`, oldest first, of runs that failed before `begun`."""
    rows = await pages.read(
        connection,
        _some,
        tenant,
        after,
        chosen.job_id,
        chosen.lane_ids,
        contains(chosen.error),
        chosen.since,
        chosen.until,
        begun,
        chosen.within,
        limit,
        straight=chosen == DeadLetterFilter(),
    )
    return [row.run_id for row in rows]


def count_of(tenant: TenantId, chosen: DeadLetterFilter, begun: datetime) -> Count:
    """How many of them failed before `begun`."""
    wanted = (
        tenant, None, chosen.job_id, chosen.lane_ids, contains(chosen.error), chosen.since, chosen.until, begun,
        chosen.within,
    )  # fmt: skip
    return Count(_SQL["count_some"], wanted)


async def get(connection: Connection, tenant: TenantId, run_id: UUID) -> DeadLetterRow | None:
    return await _get.first(connection, tenant, run_id)


async def count(connection: Connection, tenant: TenantId, exact_to: int = EXACT_TO) -> Size:
    [counted] = await _count.fetch(connection, tenant, exact_to)
    return counted


async def lock(connection: Connection, tenant: TenantId, run_ids: Sequence[UUID], *, whole: bool) -> list[LockedLetter]:
    """Lock those of the dead letters that still exist. Payload and spec are read only if `whole`."""
    return await _lock.fetch(connection, tenant, run_ids, whole)


class JobsOfRuns(msgspec.Struct, frozen=True):
    """The jobs of runs to repeat, locked: whether those that have a row allow another run, and the generations of all
    of them that have a live run."""

    allowed: dict[str, AllowedRun]
    live: set[tuple[str, int]]


async def lock_ids(connection: Connection, tenant: TenantId, job_ids: Sequence[str]) -> None:
    """Lock chosen ids: no transaction creates a new generation of them meanwhile."""
    await connection.fetch(_SQL["lock_ids"], tenant, job_ids)


async def lock_jobs(connection: Connection, tenant: TenantId, job_ids: Sequence[str]) -> JobsOfRuns:
    """Lock ids and jobs: no transaction creates a new generation of them meanwhile."""
    await lock_ids(connection, tenant, job_ids)
    rows = {row["job_id"] for row in await connection.fetch(_SQL["lock_jobs"], tenant, job_ids)}
    await jobs.lock_fired(connection, tenant, [job_id for job_id in job_ids if job_id not in rows])
    allowed = {row.job_id: row for row in await _allowed.fetch(connection, tenant, job_ids)}
    own = [run_id for job_id in job_ids if (run_id := parse_uuid(job_id)) is not None]
    live = await connection.fetch(_SQL["live_generations"], tenant, job_ids, own)
    return JobsOfRuns(allowed, {(job_id, generation) for job_id, generation in live})


async def replay(
    connection: Connection, tenant: TenantId, items: Sequence[Replay], created_by: UUID | None
) -> list[NewRun]:
    """Turn dead letters into runs, and return the new runs."""
    changed = [item.changed or (None, None) for item in items]
    return await _replay.fetch(
        connection,
        tenant,
        [item.run_id for item in items],
        [item.replay_id for item in items],
        [item.exclusive for item in items],
        [payload for payload, _ in changed],
        [spec for _, spec in changed],
        [item.changed is not None for item in items],
        created_by,
    )


async def repeat(connection: Connection, tenant: TenantId, item: Replay, created_by: UUID | None) -> NewRun | None:
    """Repeat an ended run that is not a dead letter, and return the new run."""
    payload, spec = item.changed or (None, None)
    return await _repeat.first(
        connection,
        tenant,
        item.run_id,
        item.replay_id,
        payload,
        spec,
        item.changed is not None,
        item.exclusive,
        created_by,
    )


async def discard(connection: Connection, tenant: TenantId, run_ids: Sequence[UUID]) -> int:
    return len(await connection.fetch(_SQL["discard"], tenant, run_ids))


async def discard_of_steps(
    connection: Connection, tenant: TenantId, first: UUID, last: UUID, places: Sequence[int], most: int
) -> int:
    """Discard those of some steps of a workflow run, whose step runs have ids from `first` to `last`."""
    return len(await connection.fetch(_SQL["discard_of_steps"], tenant, first, last, places, most))


async def replay_of(connection: Connection, tenant: TenantId, run_id: UUID) -> UUID | None:
    """The run that repeats `run_id`, if there is one."""
    replay_id: UUID | None = await connection.fetchval(_SQL["replay_of"], run_id, tenant)
    return replay_id


async def prune(connection: Connection, days: float, batch: int = 10_000) -> int:
    """Delete replays of runs that are no longer in the history. Return how many."""
    forgotten = 0
    while True:
        done = int((await connection.execute(_SQL["prune_replays"], days, batch)).rpartition(" ")[2])
        forgotten += done
        if done < batch:
            return forgotten
