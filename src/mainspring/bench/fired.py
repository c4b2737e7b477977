"""What became of jobs that were due: waits until they have fired, and checks that each did so once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

import asyncpg

from mainspring.bench.arena import until
from mainspring.domain.transitions import StoredState
from mainspring.store import fires

# With commit timestamps, the time of a fire can be read from the row that it changed.
POSTGRES = {"track_commit_timestamp": "on"}
_LOOK_AGAIN = 0.1
_PATIENCE = 600.0
_LAST_FIRE = "select max(pg_xact_commit_timestamp(xmin)) from mainspring.jobs where last_fired_for = $1"


async def until_fired(connection: asyncpg.Connection, moment: datetime) -> None:
    """Wait until `moment` has passed and nothing is due, with cheap queries."""
    await asyncio.sleep((moment - datetime.now(UTC)).total_seconds() + _LOOK_AGAIN)
    shards = [row["shard"] for row in await connection.fetch("select shard from mainspring.shard_leases")]

    async def none_due() -> bool:
        late = await fires.oldest_due(connection, shards)
        return late is None or late < 0

    await until(none_due, "all jobs have fired", within=_PATIENCE, every=_LOOK_AGAIN)


async def last_fire(connection: asyncpg.Connection, moment: datetime) -> float:
    """How many seconds after `moment` the last of its fires was committed."""
    last: datetime = await connection.fetchval(_LAST_FIRE, moment)
    return (last - moment).total_seconds()


async def check_fires(connection: asyncpg.Connection, job_ids: Sequence[str], moment: datetime) -> None:
    """Check that each of these jobs fired for `moment`, ran once and succeeded, and that nothing else fired or was
    missed."""
    rows = await connection.fetch("select scheduled_for, state from mainspring.run_history")
    await check_ran_once(connection, job_ids)
    if any(row["scheduled_for"] != moment or row["state"] != StoredState.SUCCESS for row in rows):
        raise AssertionError("some runs have another scheduled time, or did not end with SUCCESS")


async def check_ran_once(connection: asyncpg.Connection, job_ids: Sequence[str]) -> None:
    """Check that each of these jobs ran once, and that nothing else ran or was missed."""
    ran = [row["job_id"] for row in await connection.fetch("select job_id from mainspring.run_history")]
    if len(ran) != len(job_ids) or set(ran) != set(job_ids):
        raise AssertionError(f"{len(job_ids)} jobs were due, {len(set(ran))} of them ran, {len(ran)} runs recorded")
    if await connection.fetchval("select exists (select from mainspring.missed_fires)"):
        raise AssertionError("some fires were recorded as missed")
