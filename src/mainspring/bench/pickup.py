"""Pickup: immediate jobs, one at a time on an idle system. Measures the start of the task minus the submission."""

from __future__ import annotations

import asyncio
import time
from uuid import UUID

import asyncpg
import httpx
import uvloop

from mainspring.bench.arena import fresh_postgres, product
from mainspring.bench.ceiling import measure
from mainspring.bench.figures import progress, show
from mainspring.bench.lag import spread
from mainspring.bench.throughput import CEILING_JOBS, payload

JOBS = 300
_PATIENCE = 10.0


def main(jobs: int | None, as_json: bool) -> int:
    show("pickup", uvloop.run(run(jobs or JOBS)), as_json)
    return 0


async def run(jobs: int) -> dict[str, object]:
    waits: list[float] = []
    with progress() as bar:
        async with fresh_postgres() as (postgres, folder):
            ceiling = await measure(postgres, [payload(number) for number in range(CEILING_JOBS)])
            async with product(postgres, folder) as arena:
                task = bar.add_task("picked up", total=jobs)
                connection = await arena.connect()
                async with httpx.AsyncClient(headers=arena.headers, timeout=30) as client:
                    for number in range(jobs):
                        body = b'{"task":"bench.moment","payload":{"number":%d}}' % number
                        sent = time.time()
                        answer = await client.post(f"{arena.server_url}/v1/jobs", content=body)
                        answer.raise_for_status()
                        began = await _began(connection, UUID(answer.json()["job_id"]))
                        waits.append((began - sent) * 1000)
                        bar.advance(task)
                count = await connection.fetchval("select count(*) from mainspring.run_history where state = 10")
                await connection.close()
    if count != jobs:
        raise AssertionError(f"{jobs} jobs, {count} ended runs")
    return {**spread(waits), "jobs": jobs, "ceiling_per_s": round(ceiling)}


async def _began(connection: asyncpg.Connection, run_id: UUID) -> float:
    """The start time that the task returned, read when its run is recorded."""
    async with asyncio.timeout(_PATIENCE):
        while True:
            began = await connection.fetchval(
                "select result::text from mainspring.run_history where run_id = $1", run_id
            )
            if began is not None:
                return float(began)
            await asyncio.sleep(0.02)
