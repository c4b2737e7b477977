"""Sources: positions and message ids of what connectors read from brokers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("sources")
_PRUNED_AT_ONCE = 5000


class ReadSource(msgspec.Struct, frozen=True):
    """A source, or one of its partitions."""

    name: str
    part: str
    kind: str
    stored_offset: int | None
    taken: int
    repeated: int
    dead: int
    problems: int
    lag: int | None
    connector: str
    problem: str | None
    problem_at: datetime | None
    taken_at: datetime | None
    seen_at: datetime


class DeadMessageRow(msgspec.Struct, frozen=True):
    seq: int
    part: str
    message_id: str
    at: datetime
    reason: str
    value: str


class DeadMessage(msgspec.Struct, frozen=True):
    """A message that could not become an event or a job."""

    message_id: str
    reason: str
    value: str


class Move(msgspec.Struct, frozen=True):
    """What a connector has taken. after: the offset that is stored before. offset: the new one; None leaves it."""

    kind: str
    connector: str
    after: int | None
    offset: int | None
    taken: int = 0
    repeated: int = 0
    dead: int = 0
    lag: int | None = None
    problem: str | None = None


class PartPosition(msgspec.Struct, frozen=True):
    part: str
    kind: str
    stored_offset: int | None


_list = RowQuery(ReadSource, _SQL["list_sources"])
_dead = RowQuery(DeadMessageRow, _SQL["list_dead_messages"])
_delete = RowQuery(PartPosition, _SQL["delete_source"])


async def known(connection: Connection, tenant: TenantId, source: str, ids: Sequence[str]) -> set[str]:
    """Which of these messages were taken."""
    return {row[0] for row in await connection.fetch(_SQL["known_messages"], tenant, source, ids)}


async def offset(connection: Connection, tenant: TenantId, source: str, part: str) -> int | None:
    found: int | None = await connection.fetchval(_SQL["offset_of_source"], tenant, source, part)
    return found


async def count(connection: Connection, tenant: TenantId) -> int:
    found: int = await connection.fetchval(_SQL["count_sources"], tenant)
    return found


async def add(connection: Connection, tenant: TenantId, source: str, part: str, kind: str) -> bool:
    """Returns whether it is new."""
    return await connection.fetchval(_SQL["add_source"], tenant, source, part, kind) is not None


async def lock(connection: Connection, tenant: TenantId, source: str, part: str) -> tuple[bool, int | None]:
    """Whether it exists, and its offset."""
    row = await connection.fetchrow(_SQL["lock_source"], tenant, source, part)
    return (False, None) if row is None else (True, row[0])


async def move(connection: Connection, tenant: TenantId, source: str, part: str, done: Move) -> bool:
    """Return False if the stored offset is another one. The caller has locked the source."""
    row = await connection.fetchrow(
        _SQL["move_source"], tenant, source, part, done.after, done.offset, done.kind, done.connector, done.taken,
        done.repeated, done.dead, done.lag, done.problem,
    )  # fmt: skip
    return row is not None


async def take(connection: Connection, tenant: TenantId, source: str, ids: Sequence[str]) -> int:
    """Store ids of messages. Returns how many were not stored before."""
    return len(await connection.fetch(_SQL["take_messages"], tenant, source, ids))


async def settle(connection: Connection, tenant: TenantId, source: str, ids: Sequence[str]) -> int:
    return len(await connection.fetch(_SQL["settle_messages"], tenant, source, ids))


async def insert_dead(
    connection: Connection, tenant: TenantId, source: str, part: str, dead: Sequence[DeadMessage], most: int
) -> None:
    """Keep these, and the newest of the source, `most` in all. The caller has locked the source."""
    await connection.execute(
        _SQL["insert_dead_messages"], tenant, source, part, [one.message_id for one in dead],
        [one.reason for one in dead], [one.value for one in dead], most,
    )  # fmt: skip


async def page(connection: Connection, tenant: TenantId, after: tuple[str, str] | None, limit: int) -> list[ReadSource]:
    name, part = after or (None, None)
    return await _list.fetch(connection, tenant, name, part, limit)


async def dead_page(
    connection: Connection, tenant: TenantId, source: str, before: int | None, limit: int
) -> list[DeadMessageRow]:
    return await _dead.fetch(connection, tenant, source, before, limit)


async def delete(connection: Connection, tenant: TenantId, source: str) -> list[PartPosition]:
    """Delete a source with all of its partitions. Returns what they were."""
    return await _delete.fetch(connection, tenant, source)


async def prune_messages(connection: Connection, days: int, limit: int = _PRUNED_AT_ONCE) -> int:
    """Delete ids of messages that are settled and older. Returns how many."""
    total = 0
    while deleted := len(await connection.fetch(_SQL["prune_messages"], days, limit)):
        total += deleted
    return total
