"""Overhead: jobs that sleep for a second, in waves on 200 slots. Measures how much longer than the sleep it takes."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg
import httpx
import msgspec
import uvloop

from mainspring.bench.arena import Arena, empty_arena, fresh_postgres, submit_batch
from mainspring.bench.figures import progress, show
from mainspring.bench.recorded import ended_once, until_recorded

JOBS = 2000
SLOTS = 200
SECONDS = 1.0


class BusySpan(msgspec.Struct, frozen=True):
    """One run: its start, how long it used its slot, and when its end was recorded."""

    started: datetime
    ran: timedelta
    recorded: datetime


def main(jobs: int | None, as_json: bool) -> int:
    figures = uvloop.run(run(jobs or JOBS))
    show("overhead", figures, as_json)
    return 0


async def run(jobs: int, *, slots: int = SLOTS, seconds: float = SECONDS) -> dict[str, object]:
    with progress() as bar:
        async with fresh_postgres() as (postgres, folder), empty_arena(postgres, folder) as arena:
            server = await arena.start_server()
            await arena.start_worker(server.url, slots=slots)
            connection = await arena.connect()
            recording = bar.add_task("recorded", total=jobs)
            try:
                await _submit(arena, 1, 0.0)  # warm-up
                await until_recorded(connection, bar, recording)
                run_ids = await _submit(arena, jobs, seconds)
                await until_recorded(connection, bar, recording)
                await ended_once(connection, run_ids)
                spans = await _spans(connection, run_ids)
            finally:
                await connection.close()
    return figures_of(spans, slots, seconds)


def figures_of(spans: list[BusySpan], slots: int, seconds: float) -> dict[str, object]:
    """Compare the time from the first start to the last recorded end with the ideal number of waves. Also count the
    busy slots while there was work for all of them, which is until the last start."""
    began, last_start = min(span.started for span in spans), max(span.started for span in spans)
    wall = (max(span.recorded for span in spans) - began).total_seconds()
    ideal = math.ceil(len(spans) / slots) * seconds
    busy = sum((min(span.ran, last_start - span.started) for span in spans), timedelta())
    saturated = (last_start - began) * slots
    return {
        "jobs": len(spans),
        "slots": slots,
        "ideal_s": ideal,
        "wall_s": round(wall, 3),
        "overhead_percent": round((wall / ideal - 1) * 100, 3),
        "utilisation_percent": round(busy / saturated * 100, 2) if saturated else 100.0,
    }


async def _submit(arena: Arena, jobs: int, seconds: float) -> list[UUID]:
    body = msgspec.json.encode([{"task": "bench.sleep", "payload": {"seconds": seconds}}] * jobs)
    async with httpx.AsyncClient(headers=arena.headers, timeout=60) as client:
        return list(map(UUID, await submit_batch(client, arena.server_url, body)))


async def _spans(connection: asyncpg.Connection, run_ids: list[UUID]) -> list[BusySpan]:
    rows = await connection.fetch(
        "select started_at, ran_ms, ended_at from mainspring.run_history where run_id = any ($1::uuid[])", run_ids
    )
    return [BusySpan(row["started_at"], timedelta(milliseconds=row["ran_ms"]), row["ended_at"]) for row in rows]
