"""Shard leases and the nodes that hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("leases")


class LeaseRow(msgspec.Struct, frozen=True):
    """The lease of a shard. `expires_at` is the smallest datetime if no node holds it."""

    shard: int
    owner: UUID | None
    epoch: int
    expires_at: datetime


class LeaseCounts(msgspec.Struct, frozen=True):
    """How many nodes are live, and how many shards they hold. `at`: the time of the database."""

    nodes: int
    held: int
    at: datetime


class NodeRow(msgspec.Struct, frozen=True):
    """A node and how many shards it owns."""

    node_id: UUID
    host: str
    started_at: datetime
    seen_at: datetime
    shards: int


_nodes_with_shards = RowQuery(NodeRow, _SQL["nodes_with_shards"])
_counts = RowQuery(LeaseCounts, _SQL["standing"])
_list_leases = RowQuery(LeaseRow, _SQL["list_leases"])


async def node_seen(connection: Connection, node_id: UUID, host: str, clock_off: float | None = None) -> None:
    """`clock_off`: by how many seconds its clock differs from that of the database."""
    await connection.execute(_SQL["node_seen"], node_id, host, clock_off)


async def live_nodes(connection: Connection, within: float) -> list[UUID]:
    return [row["node_id"] for row in await connection.fetch(_SQL["live_nodes"], within)]


async def counts(connection: Connection, within: float) -> LeaseCounts:
    [found] = await _counts.fetch(connection, within)
    return found


async def nodes_with_shards(connection: Connection, within: float) -> list[NodeRow]:
    """The nodes that were seen within so many seconds."""
    return await _nodes_with_shards.fetch(connection, within)


async def forget_node(connection: Connection, node_id: UUID) -> None:
    await connection.execute(_SQL["forget_node"], node_id)


async def renew(connection: Connection, node_id: UUID, held: Mapping[int, int], ttl: float) -> dict[int, int]:
    """Renew leases {shard: epoch}. Return those that this node still holds."""
    rows = await connection.fetch(_SQL["renew"], node_id, list(held), list(held.values()), ttl)
    return dict(rows)


async def take(connection: Connection, node_id: UUID, shards: Sequence[int], ttl: float) -> dict[int, int]:
    """Take the free or expired leases of `shards`. Return {shard: new epoch}."""
    rows = await connection.fetch(_SQL["take"], node_id, shards, ttl)
    return dict(rows)


async def release(connection: Connection, node_id: UUID, held: Mapping[int, int]) -> list[int]:
    rows = await connection.fetch(_SQL["release"], node_id, list(held), list(held.values()))
    return [row["shard"] for row in rows]


async def list_leases(connection: Connection) -> list[LeaseRow]:
    return await _list_leases.fetch(connection)
