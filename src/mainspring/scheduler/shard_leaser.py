"""The shard leases of this node. See docs/architecture.md, "Ownership".

Leases are renewed in a separate thread with a separate connection. So a busy event loop or an exhausted pool cannot
cost the node its leases. The rest of the process only reads `held()`.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from uuid import UUID

import asyncpg
import msgspec

from mainspring.kernel import metrics
from mainspring.kernel.clock import Clock, DatabaseClock
from mainspring.kernel.config import SHARD_COUNT, Timing
from mainspring.kernel.lifecycle import NO_OUTAGE, Outage, backoff
from mainspring.kernel.logs import get_logger
from mainspring.kernel.texts import as_ranges
from mainspring.store import leases
from mainspring.store.database import Database
from mainspring.store.pool import connect

log = get_logger("shard_leaser")

_LONGEST_BACKOFF = 0.4  # seconds: after a failover nothing fires before the first round


class ShardLease(msgspec.Struct, frozen=True):
    epoch: int
    trusted_until: float


def rendezvous(shards: Sequence[int], nodes: Sequence[UUID], me: UUID) -> set[int]:
    """The shards of the node `me`. Every node computes the same: the highest hash of (node, shard) wins."""
    if me not in nodes:
        nodes = [*nodes, me]
    return {shard for shard in shards if max(nodes, key=lambda node: _weight(node, shard)) == me}


def _weight(node: UUID, shard: int) -> bytes:
    return hashlib.blake2b(node.bytes + shard.to_bytes(4, "big"), digest_size=8).digest()


class ShardLeaser:
    """Holds this node's leases. `run_once` renews, hands over and takes them."""

    def __init__(self, node_id: UUID, clock: Clock, database_clock: DatabaseClock, timing: Timing) -> None:
        self.node_id = node_id
        self._clock = clock
        self._database_clock = database_clock
        self._timing = timing
        self._renewed_at = float("-inf")
        self._leases: Mapping[
            int, ShardLease
        ] = {}  # replaced as a whole and never changed, because another thread reads it

    def held(self) -> dict[int, int]:
        """{shard: epoch} of the leases that are valid now."""
        now = self._clock.monotonic()
        return {shard: lease.epoch for shard, lease in self._leases.items() if lease.trusted_until > now}

    def renewing(self) -> bool:
        """Whether the last round of renewals is younger than a lease."""
        return self._clock.monotonic() - self._renewed_at < self._timing.lease_ttl

    async def run_once(self, connection: asyncpg.Connection) -> int:
        """Renew held leases, release those of other nodes' shards, and take free ones. Return how many are held."""
        ttl = self._timing.lease_ttl
        sent = self._clock.monotonic()
        database_time = await connection.fetchval("select clock_timestamp()")
        self._database_clock.observe(database_time, sent, self._clock.monotonic())
        half_way = (self._clock.monotonic() - sent) / 2
        clock_off = (self._clock.wall() - database_time).total_seconds() - half_way

        mine = {shard: lease.epoch for shard, lease in self._leases.items()}
        sent = self._clock.monotonic()
        kept = await leases.renew(connection, self.node_id, mine, ttl) if mine else {}
        lost = mine.keys() - kept.keys()
        if lost:
            log.warning("leases lost", shards=as_ranges(lost))
        self._leases = {shard: self._trusted(epoch, sent) for shard, epoch in kept.items()}

        nodes = await leases.live_nodes(connection, ttl)
        wanted = rendezvous(range(SHARD_COUNT), nodes, self.node_id)
        surplus = {shard: epoch for shard, epoch in kept.items() if shard not in wanted}
        if surplus:
            self._leases = {shard: lease for shard, lease in self._leases.items() if shard in wanted}
            await leases.release(connection, self.node_id, surplus)
            log.detail("shards handed over", shards=len(surplus))
        missing = sorted(wanted - kept.keys())
        if missing:
            sent = self._clock.monotonic()
            taken = await leases.take(connection, self.node_id, missing, ttl)
            if taken:
                granted = {shard: self._trusted(epoch, sent) for shard, epoch in taken.items()}
                self._leases = {**self._leases, **granted}
                log.detail("shards taken", shards=len(taken))
        # This comes last, so that a node whose rounds take longer than its leases does not count as live. Otherwise the
        # others would leave its shards to it (6 s late with 0.6 s each way to the database).
        await leases.node_seen(connection, self.node_id, socket.gethostname(), clock_off)
        self._renewed_at = sent
        metrics.leases_held.set(len(self._leases))
        metrics.lease_epoch.set(max((lease.epoch for lease in self._leases.values()), default=0))
        return len(self._leases)

    async def release_all(self, connection: asyncpg.Connection) -> None:
        """Release all leases of a stopping node, so that the others need not wait until they expire."""
        mine = {shard: lease.epoch for shard, lease in self._leases.items()}
        self._leases = {}
        await leases.release(connection, self.node_id, mine)
        await leases.forget_node(connection, self.node_id)

    def _trusted(self, epoch: int, sent: float) -> ShardLease:
        return ShardLease(epoch, sent + self._timing.lease_ttl - self._timing.lease_margin)


class LeaseThread:
    """Runs a ShardLeaser in its own thread, on its own connection."""

    def __init__(
        self, leaser: ShardLeaser, database: str | Database, timing: Timing, outage: Outage = NO_OUTAGE
    ) -> None:
        self._leaser = leaser
        self._database = database
        self._outage = outage
        self._timing = timing
        self._stopping = threading.Event()
        self._first_round = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        context = contextvars.copy_context()  # so that its log lines have the context of the node
        self._thread = threading.Thread(target=context.run, args=(self._main,), name="shard-leaser", daemon=True)
        self._thread.start()

    async def first_round(self) -> None:
        """Wait for the end of the first round. After that the database's time is known."""
        while not await asyncio.to_thread(self._first_round.wait, 0.5):
            pass

    async def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, 5.0)

    def _main(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            connection = None
            try:
                connection = await connect(
                    self._database,
                    application="leases",
                    settings={"statement_timeout": "2s", "lock_timeout": "1s"},
                )
                while not self._stopping.is_set():
                    await asyncio.wait_for(self._leaser.run_once(connection), self._timing.lease_ttl)
                    failures = 0
                    self._first_round.set()
                    await asyncio.to_thread(self._stopping.wait, self._timing.lease_renewal)
                await self._leaser.release_all(connection)
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                # Without a renewal the leases expire, and `held` does not return them any more.
                failures += 1
                say = log.debug if self._outage.explains(error, failures) else log.warning
                say("lease renewal failed", error=repr(error), failures=failures)
                await asyncio.to_thread(self._stopping.wait, backoff(failures, cap=_LONGEST_BACKOFF))
            finally:
                if connection is not None:
                    with suppress(OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                        await connection.close(timeout=1)
