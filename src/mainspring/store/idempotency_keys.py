"""Idempotency keys, of submissions and of run-now. store/jobs.py prunes them, together with chosen ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

KEY_DAYS = 30  # an idempotency key is known at least so long after the end of its job

_SQL = load("jobs")


class KnownKey(msgspec.Struct, frozen=True):
    """merged: what became of the submission, if another job had its unique key."""

    body_hash: bytes
    job_id: str
    generation: int
    merged: str | None = None


class RunNowKey(msgspec.Struct, frozen=True):
    """What a key of run-now stands for."""

    body_hash: bytes
    run_id: UUID


_known_run_now_key = RowQuery(RunNowKey, _SQL["known_run_now_key"])


async def take(connection: Connection, tenant: TenantId, keys: Sequence[tuple[str, bytes, str]]) -> dict[str, KnownKey]:
    """Take idempotency keys (key, body hash, job id). Return those that existed before, with their values."""
    inserted = {
        row["key"]
        for row in await connection.fetch(
            _SQL["insert_keys"], tenant, [k[0] for k in keys], [k[1] for k in keys], [k[2] for k in keys]
        )
    }
    rest = [key[0] for key in keys if key[0] not in inserted]
    if not rest:
        return {}
    rows = await connection.fetch(_SQL["known_keys"], tenant, rest)
    return {key: KnownKey(*known) for key, *known in rows}


async def set_generations(connection: Connection, tenant: TenantId, generations: Mapping[str, int]) -> None:
    """Note the generation of the jobs of keys that this transaction has taken."""
    await connection.execute(_SQL["set_key_generations"], tenant, list(generations), list(generations.values()))


async def take_run_now(
    connection: Connection, tenant: TenantId, job_id: str, generation: int, key: str, body_hash: bytes, run_id: UUID
) -> RunNowKey | None:
    """Take a key of run-now. If it was taken before, return what it stands for."""
    taken = await connection.fetchval(_SQL["insert_run_now_key"], tenant, job_id, generation, key, body_hash, run_id)
    return None if taken is not None else await _known_run_now_key.first(connection, tenant, job_id, generation, key)


async def keep(connection: Connection, since: datetime, until: datetime, batch: int = 10_000) -> None:
    """Note the ends of jobs in the history between `since` and `until` in their idempotency keys. Without it, it would
    not be known after the history is dropped how long to keep the keys."""
    last: UUID | None = UUID(int=0)
    while last is not None:
        last = await connection.fetchval(_SQL["keep_keys"], since, until, last, batch)
