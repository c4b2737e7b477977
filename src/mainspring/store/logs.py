"""The rows of logs: one per attempt that printed something, saying up to where its bytes count."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection, Record
from mainspring.store.queries import load

_SQL = load("logs")

Key = tuple[UUID, int]


class Piece(msgspec.Struct, frozen=True):
    """Consecutive chunks of one log, which count together."""

    run_id: UUID
    fence: int
    offset: int
    size: int
    truncated: bool = False
    ended: bool = False


class Found(msgspec.Struct, frozen=True):
    """attempt: what the worker runs under that fence, None when the run is not in its hands. bytes: up to where the log
    counts that it wrote."""

    attempt: int | None
    bytes: int


class AttemptLog(msgspec.Struct, frozen=True):
    attempt: int
    fence: int
    bytes: int
    truncated: bool
    ended: bool


NOTHING_PRINTED = AttemptLog(0, 0, 0, truncated=False, ended=False)


class Standing(msgspec.Struct, frozen=True):
    """A run as a reader of its log sees it; `state` is a StoredState, `over` says that it is in the history."""

    state: int
    attempt: int
    over: bool
    logs: dict[int, AttemptLog]


async def look(connection: Connection, tenant: TenantId, worker_id: UUID, keys: Sequence[Key]) -> dict[Key, Found]:
    rows = await connection.fetch(
        _SQL["look"], [run_id for run_id, _ in keys], [fence for _, fence in keys], tenant, worker_id
    )
    return {(row["run_id"], row["fence"]): Found(row["attempt"], row["bytes"]) for row in rows}


async def advance(connection: Connection, tenant: TenantId, worker_id: UUID, pieces: Sequence[Piece]) -> set[Key]:
    """Count these pieces; answers those that matched."""
    ordered = sorted(pieces, key=lambda piece: piece.run_id)
    rows = await connection.fetch(
        _SQL["advance"],
        [piece.run_id for piece in ordered],
        [piece.fence for piece in ordered],
        [piece.offset for piece in ordered],
        [piece.size for piece in ordered],
        [piece.truncated for piece in ordered],
        [piece.ended for piece in ordered],
        tenant,
        worker_id,
    )
    return {(row["run_id"], row["fence"]) for row in rows}


async def standing(connection: Connection, tenant: TenantId, run_id: UUID) -> Standing | None:
    """The run's state first and the logs after it: what counts of a run that has ended is then all there will be."""
    run = await connection.fetchrow(_SQL["standing_live"], tenant, run_id)
    run = run or await connection.fetchrow(_SQL["standing_ended"], tenant, run_id)
    if run is None:
        return None
    rows = await connection.fetch(_SQL["logs_of"], tenant, run_id)
    found = {
        row["attempt"]: AttemptLog(row["attempt"], row["fence"], row["bytes"], row["truncated"], row["ended"])
        for row in rows
    }
    return Standing(run["state"], run["attempt"], run["over"], found)


async def expired(connection: Connection, days: int, limit: int) -> list[Record]:
    rows: list[Record] = await connection.fetch(_SQL["expired"], days, limit)
    return rows


async def forget(connection: Connection, keys: Sequence[Key]) -> None:
    await connection.execute(_SQL["forget"], [run_id for run_id, _ in keys], [fence for _, fence in keys])
