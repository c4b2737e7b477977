"""When is the cluster well again? The database is asked, past every proxy, and a job is sent through the front door."""

from __future__ import annotations

import asyncio
import time

import httpx

from tests.cluster.arena import Arena
from tests.cluster.children import SCHEDULER, WORKER

_LOOK_EVERY = 0.05
_OWNED = """
    select count(*) as owned from mainspring.shard_leases
    where expires_at > clock_timestamp() and owner::text in (
        select new ->> 'node_id' from cluster_audit.events where tbl = 'nodes' and process = any ($1::text[]))
"""
_HELD_BY_OTHERS = """
    select count(*) as held from mainspring.runs r
    where r.state = 2 and not exists (
        select from mainspring.workers w where w.worker_id = r.worker_id and w.name = any ($1::text[]))
"""
_ENDED = "select from mainspring.run_history where run_id::text = $1 and state = 10"


async def time_to_recover(arena: Arena, since: float, within: float) -> float | None:
    """Seconds from `since` until all shards have living owners, no run is with the dead, and a new job gets through;
    None when that did not come about in time."""
    well = _all_of(_shards_owned(arena), _nothing_with_the_dead(arena), _a_job_gets_through(arena))
    try:
        async with asyncio.timeout(max(0.1, since + within - time.monotonic())):
            await well
    except TimeoutError:
        return None
    return time.monotonic() - since


async def _all_of(*conditions: asyncio.Future[None]) -> None:
    await asyncio.gather(*conditions)


async def _shards_owned(arena: Arena) -> None:
    while True:
        rows = await arena.ask(_OWNED, list(arena.living(SCHEDULER)))
        if rows and rows[0]["owned"] == 128:
            return
        await asyncio.sleep(_LOOK_EVERY)


async def _nothing_with_the_dead(arena: Arena) -> None:
    while True:
        rows = await arena.ask(_HELD_BY_OTHERS, list(arena.living(WORKER)))
        if rows and rows[0]["held"] == 0:
            return
        await asyncio.sleep(_LOOK_EVERY)


async def _a_job_gets_through(arena: Arena) -> None:
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


async def at_rest(arena: Arena, within: float) -> bool:
    """True once nothing is live and nothing is due."""
    query = (
        "select (select count(*) from mainspring.runs) "
        "     + (select count(*) from mainspring.jobs where next_fire_at is not null) as left_over"
    )
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        rows = await arena.ask(query)
        if rows and rows[0]["left_over"] == 0:
            return True
        await asyncio.sleep(_LOOK_EVERY)
    return False
