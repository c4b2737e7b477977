"""The audit: entries, and the chain over them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.domain.audit import StoredEntry
from mainspring.kernel.ids import TenantId, uuid7_batch
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("audit")


class NumberedEntry(StoredEntry, frozen=True):
    """An entry and the number of its transaction."""

    xid: int


class Position(msgspec.Struct, frozen=True):
    """How far entries are linked: those of transactions before `xid` are. Those from it on are not older than `since`.
    `next_since` replaces it once all transactions before `next_xid` have ended. No transaction before `xmin` is under
    way, and none from `xmax` on has begun."""

    xid: int
    since: datetime
    next_xid: int
    next_since: datetime
    xmin: int
    xmax: int
    now: datetime


class ChainHead(msgspec.Struct, frozen=True):
    """The newest link of a tenant, or the last one that was dropped."""

    tenant_id: int
    seq: int
    hash: bytes


class Link(msgspec.Struct, frozen=True):
    tenant_id: int
    seq: int
    entry_id: UUID
    entry_at: datetime
    entry_hash: bytes
    hash: bytes


class ChainRow(msgspec.Struct, frozen=True):
    """A link and its entry. present: whether there is the entry. dropped: whether its day was dropped."""

    seq: int
    linked_at: datetime
    entry_id: UUID
    entry_at: datetime
    entry_hash: bytes
    hash: bytes
    present: bool
    dropped: bool
    source: str | None
    token_id: UUID | None
    session_id: UUID | None
    actor: str | None
    role: str | None
    address: str | None
    client: str | None
    operation: str | None
    kind: str | None
    object_id: str | None
    before: str | None
    after: str | None


class Tail(msgspec.Struct, frozen=True):
    """Entries that have no link yet."""

    count: int
    since: datetime | None


class AuditFilter(msgspec.Struct, frozen=True):
    """`before`: the entry that the page before ended with."""

    tenants: Sequence[TenantId]
    actor: str | None = None
    token_id: UUID | None = None
    operation: str | None = None
    kind: str | None = None
    object_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    before: tuple[datetime, UUID] | None = None


_page = RowQuery(StoredEntry, _SQL["page"])
_position = RowQuery(Position, _SQL["position"])
_unlinked = RowQuery(NumberedEntry, _SQL["unlinked"])
_unlinked_of_all = RowQuery(NumberedEntry, _SQL["unlinked_of_all"])
_heads = RowQuery(ChainHead, _SQL["heads"])
_anchor = RowQuery(ChainHead, _SQL["anchor"])
_chain = RowQuery(ChainRow, _SQL["chain"])
_tail = RowQuery(Tail, _SQL["tail"])


async def insert(connection: Connection, entry: StoredEntry) -> None:
    """The time of the entry is the database's."""
    await connection.execute(
        _SQL["insert_entry"], entry.entry_id, entry.tenant_id, entry.source, entry.token_id, entry.session_id,
        entry.actor, entry.role, entry.address, entry.client, entry.operation, entry.kind, entry.object_id,
        entry.before, entry.after,
    )  # fmt: skip


async def insert_lost_workers(connection: Connection, lost: Sequence[tuple[UUID, float | None]]) -> None:
    """Entries for workers that are declared lost, with the seconds for which they were silent."""
    worker_ids, seconds = [one[0] for one in lost], [one[1] for one in lost]
    await connection.execute(_SQL["insert_lost_workers"], uuid7_batch(len(lost)), worker_ids, seconds)


async def insert_opened_breakers(connection: Connection, keys: Sequence[int]) -> None:
    await connection.execute(_SQL["insert_opened_breakers"], uuid7_batch(len(keys)), keys)


async def digest_key(connection: Connection) -> bytes:
    key: bytes = await connection.fetchval(_SQL["digest_key"])
    return key


async def page(connection: Connection, chosen: AuditFilter, limit: int) -> list[StoredEntry]:
    at, entry_id = chosen.before or (None, None)
    return await _page.fetch(
        connection, chosen.tenants, chosen.actor, chosen.operation, chosen.kind, chosen.object_id, chosen.since,
        chosen.until, limit, at, entry_id, chosen.token_id,
    )  # fmt: skip


async def turn(connection: Connection) -> bool:
    """Whether this transaction may link entries. No other one may until it ends."""
    taken: bool = await connection.fetchval(_SQL["turn"])
    return taken


async def position(connection: Connection) -> Position:
    found = await _position.first(connection)
    assert found is not None  # the migration has inserted it
    return found


async def unlinked(connection: Connection, place: Position, limit: int) -> list[NumberedEntry]:
    """The next entries whose transactions have ended, and all of the last transaction."""
    return await _unlinked.fetch(connection, place.xid, place.xmin, place.since, limit)


async def unlinked_of_all(connection: Connection, place: Position) -> list[NumberedEntry]:
    """All entries that have no link, in a database that was restored elsewhere."""
    return await _unlinked_of_all.fetch(connection, place.xmin, place.xmax)


async def move(connection: Connection, before: Position, after: Position) -> bool:
    moved = await connection.fetchval(
        _SQL["move"], before.xid, after.xid, after.since, after.next_xid, after.next_since
    )
    return moved is not None


async def heads(connection: Connection, tenants: Sequence[int]) -> dict[int, ChainHead]:
    return {row.tenant_id: row for row in await _heads.fetch(connection, tenants)}


async def insert_links(connection: Connection, links: Sequence[Link]) -> None:
    columns = [[getattr(link, name) for link in links] for name in Link.__struct_fields__]
    await connection.execute(_SQL["insert_links"], *columns)


async def move_heads(connection: Connection, moved: Sequence[tuple[int, ChainHead]]) -> int:
    """Each head, after the number that it had before. Returns how many were moved."""
    rows = await connection.fetch(
        _SQL["move_heads"],
        [head.tenant_id for _, head in moved],
        [before for before, _ in moved],
        [head.seq for _, head in moved],
        [head.hash for _, head in moved],
    )
    return len(rows)


async def chain(connection: Connection, tenant: TenantId, first: int, limit: int) -> list[ChainRow]:
    return await _chain.fetch(connection, tenant, first, limit)


async def anchor(connection: Connection, tenant: TenantId) -> ChainHead | None:
    return await _anchor.first(connection, tenant)


async def tail(connection: Connection, tenant: TenantId, most: int) -> Tail:
    found = await _tail.first(connection, tenant, most)
    assert found is not None
    return found
