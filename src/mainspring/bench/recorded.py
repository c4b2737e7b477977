"""What became of the jobs: wait until all are recorded, then check that each has exactly one ended run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from uuid import UUID

import asyncpg
from rich.progress import Progress, TaskID

from mainspring.domain.errors import Unavailable
from mainspring.domain.transitions import StoredState

_STALL = 15.0


async def watch(connection: asyncpg.Connection, bar: Progress, task: TaskID) -> None:
    """Move the bar until cancelled."""
    while True:
        await asyncio.sleep(0.5)
        bar.update(task, completed=await counted(connection))


async def until_recorded(connection: asyncpg.Connection, bar: Progress, task: TaskID) -> None:
    """Wait until no run is alive any more; gives up when nothing has been recorded for a while."""
    deadline, least = time.monotonic() + _STALL, 0
    while await connection.fetchval("select exists (select from mainspring.runs)"):
        recorded = await counted(connection)
        if recorded > least:
            deadline, least = time.monotonic() + _STALL, recorded
            bar.update(task, completed=recorded)
        if time.monotonic() > deadline:
            left = await connection.fetch("select state, count(*) from mainspring.runs group by state")
            raise Unavailable(f"nothing was recorded for {_STALL:g} s; left: {[tuple(row) for row in left]}")
        await asyncio.sleep(0.01)
    bar.update(task, completed=await counted(connection))


async def counted(connection: asyncpg.Connection) -> int:
    """By PostgreSQL's own counters: counting rows would take the time that is measured."""
    return int(
        await connection.fetchval(
            "select coalesce(sum(n_tup_ins), 0) from pg_stat_user_tables where relname like 'run\\_history\\_%'"
        )
    )


async def check_one_run_each(connection: asyncpg.Connection, accepted: Sequence[str], jobs: int) -> None:
    """Every one-time job that was accepted has one ended run, that succeeded, and there is no other."""
    rows = await connection.fetch("select run_id, state from mainspring.run_history")
    ended = [row["run_id"] for row in rows]
    if len(accepted) != jobs or len(ended) != jobs or set(ended) != {UUID(job_id) for job_id in accepted}:
        raise AssertionError(f"{jobs} jobs, {len(accepted)} accepted, {len(ended)} ended, {len(set(ended))} distinct")
    if any(row["state"] != StoredState.SUCCESS for row in rows):
        raise AssertionError("some runs did not end in SUCCESS")
