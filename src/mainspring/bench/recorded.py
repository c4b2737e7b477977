"""Waits until all jobs are recorded, then checks that each has exactly one ended run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import asyncpg
from rich.progress import Progress, TaskID

from mainspring.bench.arena import until
from mainspring.domain.errors import Unavailable
from mainspring.domain.transitions import StoredState

_STALL = 60.0  # ends a benchmark that hangs


async def watch(connection: asyncpg.Connection, bar: Progress, task: TaskID) -> None:
    """Update the progress bar until cancelled."""
    while True:
        await asyncio.sleep(0.5)
        bar.update(task, completed=await counted(connection))


async def until_recorded(connection: asyncpg.Connection, bar: Progress, task: TaskID) -> None:
    """Wait until no run is live. Raises an error if nothing has been recorded for a while."""
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
    """The number of recorded runs from PostgreSQL's statistics, because counting rows would disturb the measurement."""
    return int(
        await connection.fetchval(
            "select coalesce(sum(n_tup_ins), 0) from pg_stat_user_tables where relname like 'run\\_history\\_%'"
        )
    )


async def check_one_run_each(connection: asyncpg.Connection, accepted: Sequence[str], jobs: int) -> None:
    """Check that all jobs were accepted, that each has exactly one ended run with success, and that there are no
    others."""
    ended = await ended_once(connection, [UUID(job_id) for job_id in accepted])
    recorded = await connection.fetchval("select count(*) from mainspring.run_history")
    if len(ended) != jobs or recorded != jobs:
        raise AssertionError(f"{jobs} jobs, {len(accepted)} accepted, {len(ended)} of them ended, {recorded} runs")


async def until_ended(connection: asyncpg.Connection, run_ids: Sequence[UUID]) -> dict[UUID, datetime]:
    """Wait until none of these runs is live, then check them with `ended_once`."""

    async def all_ended() -> bool:
        return not await connection.fetchval(
            "select exists (select from mainspring.runs where run_id = any ($1::uuid[]))", run_ids
        )

    await until(all_ended, "the runs have ended")
    return await ended_once(connection, run_ids)


async def ended_once(connection: asyncpg.Connection, run_ids: Sequence[UUID]) -> dict[UUID, datetime]:
    """When each of these runs ended. Raises an error unless each has ended exactly once with SUCCESS."""
    rows = await connection.fetch(
        "select run_id, state, ended_at from mainspring.run_history where run_id = any ($1::uuid[])", run_ids
    )
    ended = {row["run_id"]: row["ended_at"] for row in rows}
    if len(rows) != len(run_ids) or ended.keys() != set(run_ids):
        raise AssertionError(f"{len(run_ids)} runs, {len(ended)} of them ended, {len(rows)} ends recorded")
    if any(row["state"] != StoredState.SUCCESS for row in rows):
        raise AssertionError("some runs did not end in SUCCESS")
    return ended
