"""Failover: how long work stops after kill -9 of a scheduler, a worker or a server, after a crash of PostgreSQL, and
after the machine of a worker has vanished: the worker, its watchdog and all that they run are stopped.

There are two of each on one PostgreSQL. Each fault is repeated for several rounds while jobs run.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from uuid import UUID

import httpx
import msgspec
import uvloop

from mainspring.bench.arena import BenchWorker, empty_arena, fresh_postgres, until
from mainspring.bench.cluster import PROCESSES, SLOTS, Cluster, cluster
from mainspring.bench.cron_stream import CronStream
from mainspring.bench.figures import percentile, progress, show
from mainspring.bench.recorded import until_ended
from mainspring.bench.stream import BenchStream, JobTiming
from mainspring.domain.transitions import StoredState
from mainspring.kernel.ids import uuid7
from mainspring.store.embedded.server import POLL_SECONDS

_BEFORE, _AFTER = 1.0, 3.0  # seconds of the stream before a fault and after the recovery
_DELAYED = 0.5  # a job of the stream that took longer than this was delayed


def main(rounds: int, only: Sequence[str], as_json: bool) -> int:
    show("failover", uvloop.run(run(rounds, only)), as_json)
    return 0


async def run(rounds: int, only: Sequence[str]) -> dict[str, object]:
    figures: dict[str, object] = {"rounds": rounds}
    with progress() as bar:
        async with fresh_postgres() as (postgres, folder), empty_arena(postgres, folder) as arena:
            starting = bar.add_task("processes started", total=PROCESSES)
            async with cluster(arena, lambda: bar.advance(starting)) as whole:
                for part in only:
                    task = bar.add_task(f"{part} killed", total=rounds)
                    seconds = []
                    for _ in range(rounds):
                        await whole.complete()
                        seconds.append(await PARTS[part](whole))
                        bar.advance(task)
                    figures |= {
                        f"{part}_s": round(max(seconds), 3),
                        f"{part}_p50_s": round(percentile(seconds, 0.50), 3),
                    }
    return figures


async def kill_scheduler(cluster: Cluster) -> float:
    """Seconds from kill -9 until all shards of the scheduler have an owner again, with cron jobs that fire every
    second."""

    async def both_own_shards() -> bool:
        return set(await cluster.owners()) == {scheduler.node_id for scheduler in cluster.schedulers}

    await until(both_own_shards, "both schedulers own shards")
    crons = CronStream(cluster.url, cluster.arena.headers)
    await crons.start()
    await crons.wait_for_fires(cluster.connection)
    victim = cluster.schedulers.pop(0)
    shards = await cluster.connection.fetchval(
        "select array_agg(shard) from mainspring.shard_leases where owner = $1", victim.node_id
    )
    killed = time.monotonic()
    victim.kill()

    async def taken_over() -> bool:
        owners = await cluster.owners(shards)
        return len(owners) == len(shards) and victim.node_id not in owners

    await until(taken_over, "its shards are owned again")
    seconds = time.monotonic() - killed
    await crons.wait_for_fires(cluster.connection)
    await crons.stop(cluster.connection)
    return seconds


async def kill_worker(cluster: Cluster) -> float:
    """Seconds from kill -9 until every run of the worker runs on the other worker."""
    return await _lose_worker(cluster, lambda victim: victim.kill())


async def stop_machine(cluster: Cluster) -> float:
    """Seconds from SIGSTOP of a worker and all processes below it, the watchdog among them, until every run of the
    worker runs on the other worker. They are ordinary runs."""
    stopped: list[int] = []

    def stop(victim: BenchWorker) -> None:
        stopped.extend(victim.stop_tree())

    try:
        return await _lose_worker(cluster, stop)
    finally:
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


async def _lose_worker(cluster: Cluster, lose: Callable[[BenchWorker], None]) -> float:
    """Seconds from the loss of the worker with the most runs until all of these run on the other worker."""
    release = cluster.arena.folder / f"release-{uuid7()}"
    run_ids = await _submit_holds(cluster, str(release))

    async def all_run() -> bool:
        return len(await _holders(cluster, run_ids)) == len(run_ids)

    await until(all_run, "the runs are running")
    holders = await _holders(cluster, run_ids)
    victim = max(cluster.workers, key=lambda worker: list(holders.values()).count(worker.worker_id))
    held = [run_id for run_id, worker_id in holders.items() if worker_id == victim.worker_id]
    cluster.workers.remove(victim)
    killed = time.monotonic()
    lose(victim)

    async def run_elsewhere() -> bool:
        now = await _holders(cluster, held)
        return len(now) == len(held) and victim.worker_id not in now.values()

    await until(run_elsewhere, "its runs are running elsewhere")
    seconds = time.monotonic() - killed
    release.touch()
    await until_ended(cluster.connection, run_ids)
    return seconds


async def _submit_holds(cluster: Cluster, release: str) -> list[UUID]:
    """Submit as many runs as a worker has slots. They run until the file `release` exists."""
    body = msgspec.json.encode([{"task": "bench.hold", "payload": {"file": release}}] * SLOTS)
    async with httpx.AsyncClient(base_url=cluster.url, headers=cluster.arena.headers, timeout=30) as client:
        answer = await client.post("/v1/jobs:batch", content=body)
        answer.raise_for_status()
    return [UUID(job_id) for job_id in answer.json()["job_ids"]]


async def _holders(cluster: Cluster, run_ids: Sequence[UUID]) -> dict[UUID, UUID]:
    """The workers of those runs that are running."""
    rows = await cluster.connection.fetch(
        "select run_id, worker_id from mainspring.runs where run_id = any ($1::uuid[]) and state = $2",
        run_ids,
        int(StoredState.RUNNING),
    )
    return {row["run_id"]: row["worker_id"] for row in rows}


async def kill_server(cluster: Cluster) -> float:
    """The longest time that a job of a steady stream takes from submission to its end when a server is killed with
    -9."""
    stream = BenchStream(cluster.url, cluster.arena.token)
    stream.start()
    await asyncio.sleep(_BEFORE)
    cluster.arena.servers.pop(0).kill()
    await asyncio.sleep(_AFTER)
    await stream.stop()
    return max(timing.seconds for timing in await stream.timings(cluster.connection))


async def kill_postgres(cluster: Cluster) -> float:
    """Seconds from the restart of PostgreSQL after `stop -m immediate` until no job of a steady stream is delayed."""
    stream = BenchStream(cluster.url, cluster.arena.token)
    stream.start()
    await asyncio.sleep(_BEFORE)
    ready = await _crash_postgres(cluster)
    await asyncio.sleep(_AFTER)
    await stream.stop()
    await cluster.reconnect()
    return _delayed_until(await stream.timings(cluster.connection), ready) - ready


async def _crash_postgres(cluster: Cluster) -> float:
    """Stop PostgreSQL at once and start it again. Returns the wall time at which it was ready."""
    postgres = cluster.arena.postgres
    assert postgres.pid is not None
    os.kill(postgres.pid, signal.SIGQUIT)

    async def gone() -> bool:
        return not postgres.alive()

    await until(gone, "PostgreSQL has stopped")
    looked = time.time()
    for _ in postgres.starting():
        await asyncio.sleep(POLL_SECONDS)
        looked = time.time()
    return looked


def _delayed_until(timings: Sequence[JobTiming], ready: float) -> float:
    """When the last of the delayed jobs ended."""
    return max([ready, *(timing.ended for timing in timings if timing.seconds > _DELAYED)])


PARTS: dict[str, Callable[[Cluster], Awaitable[float]]] = {
    "scheduler": kill_scheduler,
    "worker": kill_worker,
    "machine": stop_machine,
    "server": kill_server,
    "postgres": kill_postgres,
}
