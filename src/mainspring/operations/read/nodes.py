"""Reads the nodes: the processes that schedule."""

from __future__ import annotations

from mainspring.kernel.config import SHARD_COUNT, Timing
from mainspring.operations.access.caller import Caller
from mainspring.store import leases
from mainspring.store.pool import Store
from mainspring.wire.checks import NodeList
from mainspring.wire.insights import NodeView


class NodeReader:
    def __init__(self, store: Store, timing: Timing) -> None:
        self._store = store
        self._timing = timing

    async def nodes(self, caller: Caller) -> NodeList:
        """All live nodes. They serve every tenant."""
        async with self._store.reads.acquire() as connection:
            rows = await leases.nodes_with_shards(connection, 2 * self._timing.lease_ttl)
        views = [NodeView(str(row.node_id), row.host, row.started_at, row.seen_at, row.shards) for row in rows]
        return NodeList(views, sum(row.shards for row in rows), SHARD_COUNT)
