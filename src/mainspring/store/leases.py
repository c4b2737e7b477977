"""Shard leases and the nodes that hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from mainspring.store.pool import Connection, Record
from mainspring.store.queries import load

_SQL = load("leases")


async def node_seen(connection: Connection, node_id: UUID, host: str) -> None:
    await connection.execute(_SQL["node_seen"], node_id, host)


async def live_nodes(connection: Connection, within: float) -> list[UUID]:
    return [row["node_id"] for row in await connection.fetch(_SQL["live_nodes"], within)]


async def forget_node(connection: Connection, node_id: UUID) -> None:
    await connection.execute(_SQL["forget_node"], node_id)


async def renew(connection: Connection, node_id: UUID, held: Mapping[int, int], ttl: float) -> dict[int, int]:
    """Renew leases {shard: epoch}; answers those that are still ours."""
    rows = await connection.fetch(_SQL["renew"], node_id, list(held), list(held.values()), ttl)
    return {row["shard"]: row["epoch"] for row in rows}


async def take(connection: Connection, node_id: UUID, shards: Sequence[int], ttl: float) -> dict[int, int]:
    """Take what is free or expired among `shards`; answers {shard: new epoch}."""
    rows = await connection.fetch(_SQL["take"], node_id, shards, ttl)
    return {row["shard"]: row["epoch"] for row in rows}


async def release(connection: Connection, node_id: UUID, held: Mapping[int, int]) -> list[int]:
    rows = await connection.fetch(_SQL["release"], node_id, list(held), list(held.values()))
    return [row["shard"] for row in rows]


async def list_leases(connection: Connection) -> list[Record]:
    rows: list[Record] = await connection.fetch(_SQL["list_leases"])
    return rows
