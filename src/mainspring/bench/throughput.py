"""Throughput: no-op jobs of about 250 bytes through jobs:batch, with one server and one worker, until all are recorded
with their payloads. A second figure is for payloads of 1 KiB."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import httpx
import msgspec
import uvloop
from rich.progress import Progress, TaskID

from mainspring.bench.arena import Arena, fresh_postgres, product, submit_batch
from mainspring.bench.ceiling import measure
from mainspring.bench.figures import progress, show
from mainspring.bench.pgbouncer import way_through
from mainspring.bench.recorded import check_one_run_each, until_recorded, watch
from mainspring.store.database import Pooling

JOBS = 100_000
BATCH = 1000
SENDERS = 2
CEILING_JOBS = 30_000
SMALL, LARGE = 210, 1024  # bytes of a payload; the first makes a job of about 250 bytes


def main(jobs: int | None, as_json: bool, pooling: Pooling = Pooling.NONE) -> int:
    figures = uvloop.run(run(jobs or JOBS, pooling))
    show("throughput", figures, as_json)
    return 0


async def run(jobs: int, pooling: Pooling = Pooling.NONE) -> dict[str, object]:
    with progress() as bar:
        async with fresh_postgres() as (postgres, folder):
            payloads = [payload(number) for number in range(CEILING_JOBS)]
            stage = bar.add_task("plain-SQL ceiling", total=2)
            before = await measure(postgres, payloads)
            bar.advance(stage)
            with way_through(postgres, pooling) as variables:
                async with product(postgres, folder, variables=variables) as arena:
                    seconds = await drive(arena, jobs, bar)
            after = await measure(postgres, payloads)
            bar.advance(stage)
        async with fresh_postgres() as (postgres, folder), product(postgres, folder) as arena:
            seconds_of_large = await drive(arena, jobs, bar, size=LARGE)
    rate, ceiling = jobs / seconds, (before + after) / 2
    return {
        "jobs": jobs,
        "seconds": round(seconds, 3),
        "jobs_per_s": round(rate),
        "ceiling_per_s": round(ceiling),
        "ratio": round(rate / ceiling, 3),
        "jobs_per_s_1kib": round(jobs / seconds_of_large),
    }


def payload(number: int, size: int = SMALL, keys: int | None = None) -> str:
    """A payload of about `size` bytes. With `keys` it has one of so many."""
    key = {} if keys is None else {"key": number % keys}
    return msgspec.json.encode({"number": number, **key, "text": "x" * (size - 30)}).decode()


async def drive(
    arena: Arena,
    jobs: int,
    bar: Progress,
    task: str = "bench.noop",
    size: int = SMALL,
    *,
    keys: int | None = None,
    concurrency: str | None = None,
) -> float:
    """Submit all jobs, wait until all are recorded, and check that each has exactly one ended run, with its payload.
    Returns the seconds. `concurrency`: the limit of each job, as JSON."""
    limit = "" if concurrency is None else f',"concurrency":{concurrency}'
    bodies = [
        _body([f'{{"task":"{task}","payload":{payload(number, size, keys)}{limit}}}' for number in numbers])
        for numbers in (range(start, min(start + BATCH, jobs)) for start in range(0, jobs, BATCH))
    ]
    sending = bar.add_task("submitted", total=jobs)
    recording = bar.add_task("recorded", total=jobs)
    connection = await arena.connect()
    limits = httpx.Limits(max_connections=SENDERS)
    async with httpx.AsyncClient(headers=arena.headers, timeout=60, limits=limits) as client:
        started = time.perf_counter()
        accepted: list[str] = []
        queue = iter(bodies)
        watching = asyncio.create_task(watch(connection, bar, recording))
        await asyncio.gather(*(_send(arena, client, queue, accepted, bar, sending) for _ in range(SENDERS)))
        watching.cancel()
        await asyncio.wait([watching])
        await until_recorded(connection, bar, recording)
        seconds = time.perf_counter() - started
    try:
        await check_one_run_each(connection, accepted, jobs)
        kept = await connection.fetchval("select count(payload) from mainspring.run_history")
        if kept != jobs:
            raise AssertionError(f"{kept} of {jobs} payloads were kept")
    finally:
        await connection.close()
    return seconds


def _body(jobs: list[str]) -> bytes:
    return f'{{"jobs":[{",".join(jobs)}]}}'.encode()


async def _send(
    arena: Arena, client: httpx.AsyncClient, queue: Iterator[bytes], accepted: list[str], bar: Progress, task: TaskID
) -> None:
    for body in queue:
        job_ids = await submit_batch(client, arena.server_url, body)
        accepted.extend(job_ids)
        bar.advance(task, len(job_ids))
