"""Dead letters: listed, replayed, discarded; and which run repeats which."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store import pages
from mainspring.store.jobs import contains
from mainspring.store.pool import Connection, Record
from mainspring.store.queries import load

_SQL = load("dead_letters")


class DeadLetterFilter(msgspec.Struct, frozen=True):
    """Which dead letters; None means any. `since` and `until` are about the moment of their death."""

    job_id: str | None = None
    lane_ids: Sequence[int] | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class Replay(msgspec.Struct, frozen=True):
    """A run that is to be repeated. `changed`: payload and spec (JSON text) to use instead of its own."""

    run_id: UUID
    replay_id: UUID
    exclusive: bool
    changed: tuple[str | None, str | None] | None = None


async def page(
    connection: Connection, tenant: TenantId, chosen: DeadLetterFilter, before: UUID | None, limit: int
) -> list[Record]:
    """Newest first."""
    return await pages.read(
        connection,
        _SQL["page"],
        tenant,
        before,
        chosen.job_id,
        chosen.lane_ids,
        contains(chosen.error),
        chosen.since,
        chosen.until,
        limit,
        straight=chosen == DeadLetterFilter(),
    )


async def some(
    connection: Connection, tenant: TenantId, chosen: DeadLetterFilter, after: UUID | None, begun: datetime, limit: int
) -> list[UUID]:
    """The next ids after `after`, oldest first, of those that died before `begun`."""
    rows = await pages.read(
        connection,
        _SQL["some"],
        tenant,
        after,
        chosen.job_id,
        chosen.lane_ids,
        contains(chosen.error),
        chosen.since,
        chosen.until,
        begun,
        limit,
        straight=chosen == DeadLetterFilter(),
    )
    return [row["run_id"] for row in rows]


async def get(connection: Connection, tenant: TenantId, run_id: UUID) -> Record | None:
    row: Record | None = await connection.fetchrow(_SQL["get"], tenant, run_id)
    return row


async def count(connection: Connection, tenant: TenantId) -> int:
    number: int = await connection.fetchval(_SQL["count"], tenant)
    return number


async def lock(connection: Connection, tenant: TenantId, run_ids: Sequence[UUID], *, whole: bool) -> list[Record]:
    """The letters that are (still) there, locked; with payload and spec only when `whole`."""
    rows: list[Record] = await connection.fetch(_SQL["lock"], tenant, run_ids, whole)
    return rows


async def lock_jobs(connection: Connection, tenant: TenantId, job_ids: Sequence[str]) -> dict[str, Record]:
    """What the jobs that have a row say to another run: (one_at_a_time, cancelled, alive) by job_id."""
    await connection.fetch(_SQL["lock_jobs"], tenant, job_ids)
    return {row["job_id"]: row for row in await connection.fetch(_SQL["allowed"], tenant, job_ids)}


async def replay(connection: Connection, tenant: TenantId, items: Sequence[Replay]) -> list[Record]:
    """Turn letters into runs; answers (run_id, lane_id) of the new ones. All items have `changed`, or none has."""
    changed = [item.changed or (None, None) for item in items]
    rows: list[Record] = await connection.fetch(
        _SQL["replay"],
        tenant,
        [item.run_id for item in items],
        [item.replay_id for item in items],
        [item.exclusive for item in items],
        [payload for payload, _ in changed],
        [spec for _, spec in changed],
        any(item.changed is not None for item in items),
    )
    return rows


async def repeat(connection: Connection, tenant: TenantId, item: Replay) -> Record | None:
    """Repeat an ended run that is no dead letter; answers (run_id, lane_id) of the new one."""
    payload, spec = item.changed or (None, None)
    row: Record | None = await connection.fetchrow(
        _SQL["repeat"],
        tenant,
        item.run_id,
        item.replay_id,
        payload,
        spec,
        item.changed is not None,
        item.exclusive,
    )
    return row


async def discard(connection: Connection, tenant: TenantId, run_ids: Sequence[UUID]) -> int:
    return len(await connection.fetch(_SQL["discard"], tenant, run_ids))


async def replay_of(connection: Connection, tenant: TenantId, run_id: UUID) -> UUID | None:
    """The run that repeats `run_id`, if there is one."""
    replay_id: UUID | None = await connection.fetchval(_SQL["replay_of"], run_id, tenant)
    return replay_id


async def prune(connection: Connection, days: float, batch: int = 10_000) -> int:
    """Forget replays of runs that the history has forgotten; answers how many."""
    forgotten = 0
    while True:
        done = int((await connection.execute(_SQL["prune_replays"], days, batch)).rpartition(" ")[2])
        forgotten += done
        if done < batch:
            return forgotten
