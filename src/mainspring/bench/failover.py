"""Failover: how long until work goes on after kill -9 of a scheduler, a worker, a server, and a crash of PostgreSQL.

Two schedulers, two servers behind a load balancer and two workers; several rounds of each, one after the other.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import asyncpg
import httpx
import uvloop

from mainspring.bench.arena import Arena, Scheduler, Worker, empty_arena, fresh_postgres, until
from mainspring.bench.balancer import balanced
from mainspring.bench.cron_stream import CronStream
from mainspring.bench.figures import percentile, progress, show
from mainspring.bench.stream import Stream
from mainspring.domain.transitions import StoredState
from mainspring.store.embedded.server import POLL_SECONDS

ROUNDS = 5
HOLDS = 16
_BEFORE, _AFTER = 1.0, 4.0  # seconds of the stream before a fault and after it
_HELD_UP = 0.5  # a job that took longer than this was held up by the fault


def main(rounds: int | None, only: Sequence[str], as_json: bool) -> int:
    show("failover", uvloop.run(run(rounds or ROUNDS, only or tuple(PARTS))), as_json)
    return 0


async def run(rounds: int, only: Sequence[str]) -> dict[str, object]:
    figures: dict[str, object] = {"rounds": rounds}
    with progress() as bar:
        async with fresh_postgres() as (postgres, folder), empty_arena(postgres, folder) as arena:
            starting = bar.add_task("processes started", total=6)
            async with cluster(arena, lambda: bar.advance(starting)) as started:
                for part in only:
                    task = bar.add_task(f"{part} lost", total=rounds)
                    seconds = []
                    async for taken in PARTS[part](started, rounds):
                        seconds.append(taken)
                        bar.advance(task)
                    figures[f"{part}_s"] = round(max(seconds), 3)
                    figures[f"{part}_p50_s"] = round(percentile(seconds, 0.50), 3)
    return figures


class Cluster:
    def __init__(self, arena: Arena, url: str, connection: asyncpg.Connection) -> None:
        self.arena = arena
        self.url = url
        self.connection = connection
        self.schedulers: list[Scheduler] = []
        self.workers: list[Worker] = []

    async def reconnect(self) -> None:
        self.connection = await self.arena.connect()


@asynccontextmanager
async def cluster(arena: Arena, started: Callable[[], None]) -> AsyncIterator[Cluster]:
    for _ in range(2):
        await arena.start_server(scheduler=False)
        started()
    async with balanced([server.port for server in arena.servers]) as url:
        whole = Cluster(arena, url, await arena.connect())
        for _ in range(2):
            whole.schedulers.append(await arena.start_scheduler())
            started()
            whole.workers.append(await arena.start_worker(url, slots=HOLDS))
            started()
        try:
            yield whole
        finally:
            # Here, and not with the arena: workers say goodbye through the balancer.
            await asyncio.to_thread(arena.end)
            await whole.connection.close()


async def lose_scheduler(cluster: Cluster, rounds: int) -> AsyncIterator[float]:
    """Seconds until all shards of a killed scheduler are owned again, while cron jobs fire in every one of them."""
    crons = CronStream(cluster.arena.headers, cluster.url)
    await crons.start()
    for number in range(rounds):
        await until(lambda: _both_own(cluster), "both schedulers own shards")
        await crons.flows(cluster.connection)
        victim = cluster.schedulers.pop(number % 2)
        rows = await cluster.connection.fetch(
            "select shard from mainspring.shard_leases where owner = $1", victim.node_id
        )
        shards = [row["shard"] for row in rows]
        killed = time.monotonic()
        victim.kill()
        await until(lambda: _owned_by_others(cluster, victim, shards), "its shards are owned again")
        taken = time.monotonic() - killed
        await crons.flows(cluster.connection)
        cluster.schedulers.append(await cluster.arena.start_scheduler())
        yield taken
    await crons.stop()
    await crons.check(cluster.connection)


async def _both_own(cluster: Cluster) -> bool:
    rows = await cluster.connection.fetch(
        "select distinct owner from mainspring.shard_leases where expires_at > clock_timestamp()"
    )
    return {row["owner"] for row in rows} == {scheduler.node_id for scheduler in cluster.schedulers}


async def _owned_by_others(cluster: Cluster, victim: Scheduler, shards: Sequence[int]) -> bool:
    owned = await cluster.connection.fetchval(
        "select count(*) from mainspring.shard_leases "
        "where shard = any ($1::smallint[]) and owner <> $2 and expires_at > clock_timestamp()",
        shards,
        victim.node_id,
    )
    return bool(shards) and owned == len(shards)


async def lose_worker(cluster: Cluster, rounds: int) -> AsyncIterator[float]:
    """Seconds until all runs that a killed worker held are running at the other one."""
    for number in range(rounds):
        file = cluster.arena.folder / f"release-{number}"
        job_ids = await _submit_holds(cluster, str(file))
        await until(lambda: _running(cluster) == len(job_ids), "the runs are running")
        victim = max(cluster.workers, key=lambda worker: len(held[worker.worker_id]))
