"""Lag: jobs that are due at different times. Measures the start of the task minus its scheduled time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import asyncpg
import httpx
import msgspec
import uvloop

from mainspring.bench.arena import Arena, fresh_postgres, product
from mainspring.bench.ceiling import measure
from mainspring.bench.figures import percentile, progress, show
from mainspring.bench.throughput import CEILING_JOBS, payload

JOBS = 1000
OVER = 20.0
_HEAD_START = 3.0
_PATIENCE = 60.0


def main(jobs: int | None, as_json: bool) -> int:
    show("start lag", uvloop.run(run(jobs or JOBS)), as_json)
    return 0


async def run(jobs: int) -> dict[str, object]:
    with progress() as bar:
        async with fresh_postgres() as (postgres, folder):
            ceiling = await measure(postgres, [payload(number) for number in range(CEILING_JOBS)])
            async with product(postgres, folder) as arena:
                submitting = bar.add_task("submitted", total=jobs)
                await _submit(arena, jobs)
                bar.advance(submitting, jobs)
                started = bar.add_task("ended", total=jobs)
                connection = await arena.connect()
                async with asyncio.timeout(_HEAD_START + OVER + _PATIENCE):
                    while (ended := await _ended(connection)) < jobs:
                        bar.update(started, completed=ended)
                        await asyncio.sleep(0.5)
                rows = await connection.fetch(
                    "select scheduled_for, result::text as result, state from mainspring.run_history"
                )
                await connection.close()
    if len(rows) != jobs or any(row["state"] != 10 for row in rows):
        raise AssertionError(f"{jobs} jobs, {len(rows)} ended runs")
    lags = [(float(row["result"]) - row["scheduled_for"].timestamp()) * 1000 for row in rows]
    return {**spread(lags), "jobs": jobs, "ceiling_per_s": round(ceiling)}


def spread(milliseconds: list[float]) -> dict[str, object]:
    return {
        "p50_ms": round(percentile(milliseconds, 0.50), 2),
        "p99_ms": round(percentile(milliseconds, 0.99), 2),
        "max_ms": round(max(milliseconds), 2),
    }


async def _submit(arena: Arena, jobs: int) -> None:
    first = datetime.now(UTC) + timedelta(seconds=_HEAD_START)
    requests = [
        {
            "task": "bench.moment",
            "schedule": {"at": (first + timedelta(seconds=OVER * number / jobs)).isoformat()},
            "payload": {"number": number},
        }
        for number in range(jobs)
    ]
    async with httpx.AsyncClient(headers=arena.headers, timeout=60) as client:
        answer = await client.post(f"{arena.server_url}/v1/jobs:batch", content=msgspec.json.encode(requests))
        answer.raise_for_status()


async def _ended(connection: asyncpg.Connection) -> int:
    return int(await connection.fetchval("select count(*) from mainspring.run_history"))
