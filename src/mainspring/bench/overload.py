"""Overload: servers are offered twice what they can take, while many workers hold runs there.

The capacity is measured first, with the workers in place. Then twice as many jobs are offered, whether the servers keep
up or not. No worker may be lost, no acknowledged job may be lost, and afterwards they must be as fast as before.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from uuid import UUID

import asyncpg
import httpx
import msgspec
import uvloop

from mainspring.bench import protocol_workers
from mainspring.bench.arena import Arena, empty_arena, fresh_postgres, submit_batch, until
from mainspring.bench.figures import progress, show
from mainspring.bench.offered_load import Load
from mainspring.bench.protocol_workers import Orders, Report
from mainspring.bench.worker_processes import WorkerProcesses, worker_processes
from mainspring.domain.transitions import StoredState
from mainspring.kernel.garbage_collection import freeze_garbage_collection
from mainspring.store.workers import WorkerState

WORKERS = 1000
RUNS = 10_000
SECONDS = 30.0
FACTOR = 2.0
_CAPACITY_SECONDS = 5.0
_WINDOW = 0.5
_FULL_SPEED = 0.9
_PATIENCE = 60.0
_BATCH = 1000


class OverloadSizes(msgspec.Struct, frozen=True):
    workers: int = WORKERS
    runs: int = RUNS
    seconds: float = SECONDS
    capacity_seconds: float = _CAPACITY_SECONDS
    servers: int = 1
    patience: float = _PATIENCE


def main(workers: int, runs: int, seconds: float, servers: int, as_json: bool) -> int:
    show("overload", uvloop.run(run(OverloadSizes(workers, runs, seconds, servers=servers))), as_json)
    return 0


async def run(sizes: OverloadSizes) -> dict[str, object]:
    with progress() as bar:
        async with fresh_postgres() as (postgres, folder), empty_arena(postgres, folder) as arena:
            stages = bar.add_task("stages", total=4)
            for _ in range(sizes.servers):
                await arena.start_server()
            look = await arena.connect()
            try:
                async with _workers(arena, sizes) as workers:
                    await _hold(arena, look, sizes.runs)
                    bar.advance(stages)
                    figures = await _drive(arena, look, sizes, lambda: bar.advance(stages))
                    reports = await workers.end()
            finally:
                await look.close()
    return {
        **figures, "servers": sizes.servers, "workers": sizes.workers,
        "held": sum(report.held for report in reports),
        "longest_silence_s": max(report.longest_silence_s for report in reports),
    }  # fmt: skip


async def _drive(
    arena: Arena, look: asyncpg.Connection, sizes: OverloadSizes, step: Callable[[], None]
) -> dict[str, object]:
    load = Load([server.url for server in arena.servers], arena.token)
    freeze_garbage_collection()
    await load.saturate(min(1.0, sizes.capacity_seconds))  # connections, plans and caches are warm from here on
    capacity = await load.saturate(sizes.capacity_seconds)
    step()
    before = load.statuses.copy()
    offered = await load.offer(FACTOR * capacity, sizes.seconds)
    ended = time.perf_counter()
    step()
    recovered = await _recovery(load, capacity, ended, sizes.patience)
    await load.settle()
    answers = load.statuses - before
    step()
    await _check_accepted(look, load.accepted)
    lost = await look.fetchval("select count(*) from mainspring.workers where state = $1", int(WorkerState.LOST))
    load.close()
    return {
        "capacity_per_s": round(capacity),
        "offered_per_s": round(offered),
        "seconds": sizes.seconds,
        "lost_workers": lost,
        "refused": answers[429],
        "unanswered": answers[0],
        "recovered_s": None if recovered is None else round(recovered, 2),
    }


async def _recovery(load: Load, capacity: float, ended: float, patience: float) -> float | None:
    """Seconds from the end of the load to the first window at full speed. None if there is none in time."""
    while time.perf_counter() - ended < patience:
        began = time.perf_counter() - ended
        if await load.saturate(_WINDOW) >= _FULL_SPEED * capacity:
            return began
    return None


async def _hold(arena: Arena, look: asyncpg.Connection, runs: int) -> None:
    """Submit the runs that the workers hold, and wait until they have them."""
    async with httpx.AsyncClient(headers=arena.headers, timeout=60) as client:
        for start in range(0, runs, _BATCH):
            job = {"task": protocol_workers.TASK, "queue": protocol_workers.QUEUE}
            body = msgspec.json.encode([job] * min(_BATCH, runs - start))
            await submit_batch(client, arena.server_url, body)

    async def all_held() -> bool:
        count = await look.fetchval("select count(*) from mainspring.runs where state = $1", int(StoredState.RUNNING))
        return bool(count == runs)

    await until(all_held, "the workers hold all runs", every=0.2)


async def _check_accepted(look: asyncpg.Connection, accepted: list[UUID]) -> None:
    """No worker runs these jobs, so each of them still waits."""
    found = 0
    for start in range(0, len(accepted), 10_000):
        found += await look.fetchval(
            "select count(*) from mainspring.runs where run_id = any ($1::uuid[])", accepted[start : start + 10_000]
        )
    if found != len(accepted):
        raise AssertionError(f"{len(accepted)} jobs were acknowledged and {found} are stored")


@asynccontextmanager
async def _workers(arena: Arena, sizes: OverloadSizes) -> AsyncIterator[WorkerProcesses[Report]]:
    """All of them registered, each at one server; ended at last."""
    slots = -(-sizes.runs // sizes.workers)
    orders = [
        Orders(server.url, arena.token, len(range(place, sizes.workers, len(arena.servers))), slots)
        for place, server in enumerate(arena.servers)
    ]
    async with worker_processes(protocol_workers.__name__, Report, orders) as processes:
        yield processes
