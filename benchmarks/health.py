"""`python benchmarks/health.py`: what a round of the health keeper costs with 100,000 jobs.

It fills the tables directly: recurring jobs, 60,000 runs that have ended in the last minute, and 20,000 that are ready.
"""

from __future__ import annotations

import asyncio
import time

import asyncpg

from mainspring.bench.arena import fresh_postgres
from mainspring.kernel.clock import SYSTEM_CLOCK
from mainspring.operations.signals import Signals
from mainspring.store.migrate import migrate
from mainspring.store.partitions import ensure_ahead
from mainspring.store.pool import open_store
from mainspring.upkeep.health_keeper import HealthKeeper

_FILL = """
insert into mainspring.lanes (tenant_id, queue, priority, task) values (1, 'default', 1, 'noop');
insert into mainspring.jobs (tenant_id, job_id, lane_id, shard, status, max_attempts, one_time, id_generated,
                             next_fire_at, created_at, updated_at, schedule, spec)
select 1, 'job-' || i, 1, i % 128, 1, 1, false, false, now() + interval '1 hour', now(), now(), '{"every": 3600}',
       '{"owner": "bench"}'
from generate_series(1, 100000) as i;
insert into mainspring.run_history (run_id, tenant_id, lane_id, state, attempt, max_attempts, fence, scheduled_for,
                                    started_at, ended_at, ran_ms, job_id, spec)
select gen_random_uuid(), 1, 1, case when i % 20 = 0 then 11 else 10 end, 1, 1, 1, now(), now(),
       now() - interval '1 minute' - i % 60 * interval '1 second', 5, 'job-' || i, '{"owner": "bench"}'
from generate_series(1, 60000) as i;
insert into mainspring.runs (run_id, tenant_id, lane_id, state, max_attempts, scheduled_for, ready_at, job_id, spec)
select overlay(gen_random_uuid()::text
               placing left(lpad(to_hex((extract(epoch from now()) * 1000)::bigint), 12, '0'), 8) from 1 for 8)::uuid,
       1, 1, 1, 1, now(), now(), 'job-' || i, '{"owner": "bench", "deadline": 7200.0}'
from generate_series(1, 20000) as i;
vacuum analyze
"""
# What was new is older than what a round looks at.
_LATER = """
update mainspring.runs
set run_id = overlay(run_id::text placing '00000000' from 1 for 8)::uuid, ready_at = ready_at - interval '1 minute'
"""
# The days before are judged already.
_NEW = """
insert into mainspring.health_watermark (ended_until, looked_until) values (now() - interval '5 minutes', now())
"""


async def measure(url: str) -> None:
    await migrate(url)
    connection = await asyncpg.connect(url)
    store = await open_store(url)
    try:
        await ensure_ahead(connection)
        for statement in _FILL.split(";"):
            await connection.execute(statement)
        keeper = HealthKeeper(store, Signals(store), SYSTEM_CLOCK)
        keeper.look_every = 0.0
        await connection.execute(_NEW)
        for what in ("60,000 ends, 20,000 new runs with a deadline", "the same runs", *3 * ["nothing new"]):
            if what == "nothing new":
                await connection.execute(_LATER)
            began = time.perf_counter()
            await keeper.run_once()
            took = time.perf_counter() - began
            rows = await connection.fetchval("select count(*) from mainspring.job_health")
            watched = await connection.fetchval("select count(*) from mainspring.watched_runs")
            print(f"{what}: {1000 * took:,.0f} ms; {rows:,} judged, {watched:,} watched")
    finally:
        await store.close()
        await connection.close()


async def main() -> None:
    async with fresh_postgres() as (server, _):
        await measure(server.url())


if __name__ == "__main__":
    asyncio.run(main())
