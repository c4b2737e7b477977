"""Growth: what a job costs beside few and beside very many others: its bytes, and to register, fire and claim it.

Each size has a fresh database, which is filled with copies of a job that a server has stored. At each size the same
number of jobs is due, and runs at once, so the figures can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import asyncpg
import httpx
import msgspec
import uvloop
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from mainspring.bench import fired
from mainspring.bench.arena import Arena, empty_arena, fresh_postgres
from mainspring.bench.figures import progress, show
from mainspring.bench.generated import add_jobs, add_lanes
from mainspring.bench.recorded import until_recorded
from mainspring.bench.registration import check_in_time, daily_at, register, second_ahead
from mainspring.bench.throughput import drive
from mainspring.domain.transitions import StoredState

SIZES = (100_000, 1_000_000, 10_000_000, 20_000_000)
DUE = 10_000
CLAIMED = 30_000
_POSTGRES = {**fired.POSTGRES, "shared_buffers": "256MB", "max_wal_size": "4GB"}
_TEMPLATE = "template"
_HEAD_START = 8.0  # longer than the scheduler's look-ahead
_FIRED_ONCE = """
select count(*) as runs, count(distinct job_id) as jobs, max(ended_at) as last_end,
       count(*) filter (where state = $2) as succeeded
from mainspring.run_history where scheduled_for = $1
"""
_HISTORY_BYTES = """
select sum(pg_total_relation_size(inhrelid))::bigint from pg_inherits
where inhparent = 'mainspring.run_history'::regclass
"""


class GrowthSizes(msgspec.Struct, frozen=True):
    """jobs: the numbers of pending jobs, one after another. due: how many more are due in one second. claimed: how many
    jobs are submitted to run at once."""

    jobs: Sequence[int] = SIZES
    due: int = DUE
    claimed: int = CLAIMED
    head_start: float = _HEAD_START


def sizes_up_to(jobs: int) -> list[int]:
    """The sizes below `jobs`, and `jobs`."""
    return [size for size in SIZES if size < jobs] + [jobs]


def main(sizes: GrowthSizes, as_json: bool) -> int:
    figures = uvloop.run(run(sizes))
    if as_json:
        show("growth", figures, as_json)
        return 0
    table = Table(title="growth", title_justify="left")
    rows = figures["sizes"]
    assert isinstance(rows, list)
    table.add_column("")
    for row in rows:
        table.add_column(f"{row['jobs']:,} jobs", justify="right")
    for name in list(rows[0])[1:]:
        table.add_row(name, *(f"{row[name]:,}" for row in rows))
    Console().print(table)
    return 0


async def run(sizes: GrowthSizes) -> dict[str, object]:
    with progress() as bar:
        going = bar.add_task("sizes", total=len(sizes.jobs))
        rows = []
        for jobs in sizes.jobs:
            rows.append(await _measure(jobs, sizes, bar))
            bar.advance(going)
    return {"due": sizes.due, "claimed": sizes.claimed, "sizes": rows}


async def _measure(jobs: int, sizes: GrowthSizes, bar: Progress) -> dict[str, object]:
    async with fresh_postgres(_POSTGRES) as (postgres, folder), empty_arena(postgres, folder) as arena:
        server = await arena.start_server()
        connection = await arena.connect()
        try:
            filling = bar.add_task(f"{jobs:,} jobs are made", total=None)
            bytes_of_job = await fill(arena, connection, jobs)
            bar.remove_task(filling)
            await arena.start_worker(server.url)
            cpu = sum(arena.cpu_seconds())
            seconds = await drive(arena, sizes.claimed, bar)
            spent = sum(arena.cpu_seconds()) - cpu
            bytes_of_run = (await connection.fetchval(_HISTORY_BYTES)) / sizes.claimed
            figures = await _fire(arena, connection, sizes, bar)
        finally:
            await connection.close()
        return {
            "jobs": jobs,
            "bytes_per_pending_job": round(bytes_of_job),
            "bytes_per_ended_run": round(bytes_of_run),
            "claimed_per_s": round(sizes.claimed / seconds),
            "claimed_cpu_us": round(spent / sizes.claimed * 1e6, 1),
            **figures,
            "server_mb": round(server.peak_mb() or 0.0, 1),
        }


async def fill(arena: Arena, connection: asyncpg.Connection, jobs: int) -> float:
    """The bytes of each job, with its indexes. The jobs are due in half a year."""
    far = datetime.now(UTC) + timedelta(days=180)
    request = {
        "job_id": _TEMPLATE, "task": "bench.noop", "schedule": f"30 2 {min(far.day, 28)} {far.month} *",
        "owner": "team-0", "labels": {"team": "team-0"}, "payload": {"month": 6},
    }  # fmt: skip
    async with httpx.AsyncClient(base_url=arena.server_url, headers=arena.headers) as client:
        (await client.post("/v1/jobs", json=request)).raise_for_status()
    await connection.execute("set synchronous_commit = off")
    lanes = await add_lanes(connection, tasks=100, queues=10)
    await add_jobs(connection, _TEMPLATE, lanes, jobs)
    await connection.execute("vacuum (analyze) mainspring.jobs")
    size: int = await connection.fetchval("select pg_total_relation_size('mainspring.jobs')")
    return size / (jobs + 1)


async def _fire(
    arena: Arena, connection: asyncpg.Connection, sizes: GrowthSizes, bar: Progress
) -> dict[str, float | int]:
    """Register jobs that are due in one second, and wait until each has fired and ended once."""
    registering = bar.add_task("registered", total=sizes.due)
    started = datetime.now(UTC)
    moment = second_ahead(sizes.head_start + sizes.due / 500)
    cpu = sum(arena.cpu_seconds())
    near = await register(
        arena, sizes.due, lambda number: {"task": "bench.noop", "schedule": daily_at(moment)}, bar, registering
    )
    registered = sum(arena.cpu_seconds()) - cpu
    check_in_time(moment)
    cpu = sum(arena.cpu_seconds())
    await fired.until_fired(connection, moment)
    await until_recorded(connection, bar, bar.add_task("run", total=None))
    spent = sum(arena.cpu_seconds()) - cpu
    row = await connection.fetchrow(_FIRED_ONCE, moment, StoredState.SUCCESS)
    if not row["runs"] == row["jobs"] == row["succeeded"] == sizes.due:
        raise AssertionError(f"{sizes.due} jobs were due since {started}: {tuple(row)}")
    return {
        "registered_per_s": round(len(near.job_ids) / near.seconds),
        "registered_cpu_us": round(registered / sizes.due * 1e6, 1),
        "last_fire_s": round(await fired.last_fire(connection, moment), 3),
        "last_end_s": round((row["last_end"] - moment).total_seconds(), 3),
        "fired_cpu_us": round(spent / sizes.due * 1e6, 1),
    }
