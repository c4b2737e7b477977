"""Detects recovery: queries the database without a proxy, and submits a job through the load balancer."""

from __future__ import annotations

import asyncio
import time

import httpx

from tests.cluster.arena import Arena
from tests.cluster.children import SCHEDULER, WORKER
from tests.cluster.pace import PaceWatch

_LOOK_EVERY = 0.05
_WELL_FOR = 1.5
_LATE = 1.0
# Shards with a live owner, runs with a dead worker, and the lateness of the most overdue job.
_STATE = """
    select (select count(*) from mainspring.shard_leases
            where expires_at > clock_timestamp() and owner::text in (
                select new ->> 'node_id' from cluster_audit.events
                where tbl = 'nodes' and process = any ($1::text[]))) as owned,
           (select count(*) from mainspring.runs r
            where r.state = 2 and not exists (
                select from mainspring.workers w
                where w.worker_id = r.worker_id and w.name = any ($2::text[]))) as with_the_dead,
           (select extract(epoch from clock_timestamp() - min(next_fire_at))::float8
            from mainspring.jobs where next_fire_at is not null) as late
"""
_ENDED = "select from mainspring.run_history where run_id::text = $1 and state = 10"


async def time_to_recover(arena: Arena, since: float, within: float) -> float | None:
    """Seconds from `since` until the last time at which a shard had no live owner, a run had a dead worker, a job was
    late or a new job did not succeed. None if the cluster did not recover in time."""
    try:
        async with asyncio.timeout(max(0.1, since + within - time.monotonic())):
            moments = await asyncio.gather(_last_unwell(arena, since), _a_job_gets_through(arena))
    except TimeoutError:
        return None
    return max(moments) - since


async def _last_unwell(arena: Arena, since: float) -> float:
    """Wait until the cluster has been healthy for a while. Returns the time from which on it was."""
    unwell = since
    while time.monotonic() - unwell < _WELL_FOR:
        rows = await arena.ask(_STATE, list(arena.living(SCHEDULER)), list(arena.living(WORKER)))
        if not rows or rows[0]["owned"] < 128 or rows[0]["with_the_dead"] or (rows[0]["late"] or 0.0) > _LATE:
            unwell = time.monotonic()
        await asyncio.sleep(_LOOK_EVERY)
    return unwell


async def _a_job_gets_through(arena: Arena) -> float:
    job_id = None
    async with arena.client(timeout=2.0) as client:
        while job_id is None:
            try:
                answer = await client.post("/v1/jobs", json={"task": "note"})
                job_id = answer.json()["job_id"] if answer.status_code == 201 else None
            except httpx.TransportError:
                job_id = None
            if job_id is None:
                await asyncio.sleep(_LOOK_EVERY)
    while not await arena.ask(_ENDED, job_id):
        await asyncio.sleep(_LOOK_EVERY)
    return time.monotonic()


async def at_rest(arena: Arena, within: float, pace: PaceWatch | None = None) -> bool:
    """True when no run is live, no job is due, and events have started what they start."""
    query = (
        "select (select count(*) from mainspring.runs) "
        "     + (select count(*) from mainspring.jobs where next_fire_at is not null) "
        "     + (select count(*) from mainspring.events where not matched) "
        "     + (select count(*) from mainspring.unmatched_events) "
        "     + (select count(*) from mainspring.event_starts where due_at is not null) as left_over"
    )
    began = time.monotonic()
    over = _clock_says if pace is None else pace.passed
    while not over(began, within):
        rows = await arena.ask(query)
        if rows and rows[0]["left_over"] == 0:
            return True
        await asyncio.sleep(_LOOK_EVERY)
    return False


def _clock_says(since: float, seconds: float) -> bool:
    return time.monotonic() >= since + seconds
