"""The rows of logs: one per attempt with output. Each contains the valid length of its log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from mainspring.domain.transitions import UNKNOWN_STATE, StoredState
from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection, Record
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("logs")

Key = tuple[UUID, int]


class StoredChunk(NamedTuple):
    """A row of log_chunks: `size` bytes of output, possibly compressed. `words`: see domain/log_words.py."""

    run_id: UUID
    fence: int
    first_byte: int
    size: int
    data: bytes
    words: bytes | None


class Piece(msgspec.Struct, frozen=True):
    """Consecutive chunks of one log, which become valid together."""

    run_id: UUID
    fence: int
    offset: int
    size: int
    truncated: bool = False
    ended: bool = False


class FoundLog(msgspec.Struct, frozen=True):
    """The state of a log before a shipment.

    attempt   the attempt that the worker runs under that fence; None if it does not hold the run
    tenant    the tenant of the run
    bytes     the valid length of the log
    truncated output after these bytes was dropped, and all that follows is dropped too
    """

    attempt: int | None
    tenant: TenantId | None
    bytes: int
    truncated: bool


class LogRow(msgspec.Struct, frozen=True):
    attempt: int
    fence: int
    bytes: int
    truncated: bool
    ended: bool


NOTHING_PRINTED = LogRow(0, 0, 0, truncated=False, ended=False)


class LogState(msgspec.Struct, frozen=True):
    """A run as a reader of its log sees it. `state` is a StoredState, or UNKNOWN_STATE if only the log is left. `over`:
    the run is not live."""

    state: int
    attempt: int
    over: bool
    logs: dict[int, LogRow]

    def has_ended(self, attempt: int) -> bool:
        """Whether this attempt prints nothing more."""
        if self.over or self.attempt > attempt:
            return True
        return self.attempt == attempt and self.state != StoredState.RUNNING


class ExpiredLog(msgspec.Struct, frozen=True):
    """The log of an attempt whose run is no longer in the history."""

    run_id: UUID
    attempt: int
    fence: int
    tenant_id: TenantId


_expired = RowQuery(ExpiredLog, _SQL["expired"])


async def found(connection: Connection, tenant: TenantId, worker_id: UUID, keys: Sequence[Key]) -> dict[Key, FoundLog]:
    rows = await connection.fetch(
        _SQL["look"], [run_id for run_id, _ in keys], [fence for _, fence in keys], tenant, worker_id
    )
    return {(run_id, fence): FoundLog(*found) for run_id, fence, *found in rows}


async def sizes(connection: Connection, run_ids: Sequence[UUID]) -> dict[UUID, int]:
    """How many bytes all attempts of each run have printed, as far as they count."""
    return {row["run_id"]: row["bytes"] for row in await connection.fetch(_SQL["sizes"], run_ids)}


async def advance(connection: Connection, tenant: TenantId, worker_id: UUID, pieces: Sequence[Piece]) -> dict[Key, int]:
    """Make these pieces valid. Return those that matched, with the number of the attempt."""
    return _counted(await connection.fetch(_SQL["advance"], *_arguments(tenant, worker_id, pieces)))


async def record(
    connection: Connection,
    tenant: TenantId,
    worker_id: UUID,
    pieces: Sequence[Piece],
    chunks: Sequence[StoredChunk],
) -> dict[Key, int]:
    """As `advance`, and store the chunks of the pieces that matched."""
    columns = [list(column) for column in zip(*chunks, strict=True)]
    return _counted(await connection.fetch(_SQL["record"], *_arguments(tenant, worker_id, pieces), *columns))


def _arguments(tenant: TenantId, worker_id: UUID, pieces: Sequence[Piece]) -> tuple[Any, ...]:
    ordered = sorted(pieces, key=lambda piece: piece.run_id)
    return (
        [piece.run_id for piece in ordered],
        [piece.fence for piece in ordered],
        [piece.offset for piece in ordered],
        [piece.size for piece in ordered],
        [piece.truncated for piece in ordered],
        [piece.ended for piece in ordered],
        tenant,
        worker_id,
    )


def _counted(rows: Sequence[Record]) -> dict[Key, int]:
    return {(run_id, fence): attempt for run_id, fence, attempt in rows}


async def states(connection: Connection, wanted: Sequence[tuple[TenantId, UUID]]) -> dict[UUID, LogState]:
    """The states of these runs, without those that do not exist."""
    rows = await connection.fetch(_SQL["standings"], [tenant for tenant, _ in wanted], [run_id for _, run_id in wanted])
    found: dict[UUID, LogState] = {}
    for run_id, state, attempt, over, number, *log in rows:
        if run_id not in found:
            found[run_id] = LogState(state, attempt, over, {})
        elif state == UNKNOWN_STATE:  # the newest attempt comes last
            found[run_id] = LogState(state, attempt, over, found[run_id].logs)
        if number is not None:
            found[run_id].logs[number] = LogRow(number, *log)  # the later of two fences, because that one ran
    return found


async def expired(connection: Connection, days: int, limit: int) -> list[ExpiredLog]:
    return await _expired.fetch(connection, days, limit)


async def forget(connection: Connection, keys: Sequence[Key]) -> None:
    await connection.execute(_SQL["forget"], [run_id for run_id, _ in keys], [fence for _, fence in keys])
