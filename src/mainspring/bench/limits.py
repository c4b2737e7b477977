"""Limits: no-op jobs under limits of concurrency, beside the same jobs without limits, through the same processes."""

from __future__ import annotations

import uvloop
from rich.progress import Progress

from mainspring.bench.arena import fresh_postgres, product
from mainspring.bench.figures import progress, show
from mainspring.bench.throughput import drive

JOBS = 100_000
KEYS = 1000
SLOTS_OF_ONE_KEY = 50


def main(jobs: int | None, as_json: bool) -> int:
    show("limits", uvloop.run(run(jobs or JOBS)), as_json)
    return 0


async def run(jobs: int, keys: int = KEYS) -> dict[str, object]:
    with progress() as bar:
        without = await _measure(jobs, bar, None, keys)
        limited = await _measure(jobs, bar, '{"key":"payload.key","limit":1}', keys)
        one_key = await _measure(jobs, bar, f'{{"key":"payload.key","limit":{SLOTS_OF_ONE_KEY}}}', 1)
    return {
        "jobs": jobs,
        "keys": keys,
        "unlimited_per_s": round(jobs / without),
        "limited_per_s": round(jobs / limited),
        "ratio": round(without / limited, 3),
        "one_key_of_50_per_s": round(jobs / one_key),
        "one_key_ratio": round(without / one_key, 3),
    }


async def _measure(jobs: int, bar: Progress, concurrency: str | None, keys: int) -> float:
    """Seconds until all jobs are recorded, each with exactly one run."""
    async with fresh_postgres() as (postgres, folder), product(postgres, folder) as arena:
        return await drive(arena, jobs, bar, keys=keys, concurrency=concurrency)
