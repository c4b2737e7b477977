"""`python benchmarks/waits.py [WAITS]`: what a look of the sweeper costs while nothing is due, with and without waits.

It fills the tables directly: steps of workflows that sleep for days.
"""

from __future__ import annotations

import asyncio
import sys
import time
from statistics import median

import asyncpg

from mainspring.bench.arena import fresh_postgres
from mainspring.operations.signals import Signals
from mainspring.operations.waits.sweeper import WaitSweeper
from mainspring.store.migrate import migrate
from mainspring.store.partitions import ensure_ahead
from mainspring.store.pool import open_store

_WAITS = 200_000
_ROUNDS = 300
_FILL = """
insert into mainspring.lanes (tenant_id, queue, priority, task) values (1, 'default', 1, 'mainspring.wait');
with born as (
    insert into mainspring.runs
        (run_id, tenant_id, lane_id, state, max_attempts, scheduled_for, ready_at, follows, started_at)
    select gen_random_uuid(), 1, 1, 3, 1, now(), now(), 1041, now() from generate_series(1, $1)
    returning run_id
)
insert into mainspring.waits (run_id, tenant_id, kind, fence, began_at, wake_at, about)
select run_id, 1, 1, 0, now(), now() + interval '3 days' * (1 + random()), '{"kind":1,"seconds":259200.0}' from born
"""


async def rounds(sweeper: WaitSweeper) -> tuple[float, float]:
    """Milliseconds of a round: the median, and of the CPU of this process."""
    await sweeper.run_once()
    used, took = time.process_time(), []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        if await sweeper.run_once():
            raise RuntimeError("nothing is due")
        took.append(time.perf_counter() - began)
    return median(took) * 1000, (time.process_time() - used) / _ROUNDS * 1000


async def measure(url: str, number: int) -> None:
    await migrate(url)
    connection = await asyncpg.connect(url)
    store = await open_store(url)
    try:
        await ensure_ahead(connection)
        sweeper = WaitSweeper(store, Signals(store))
        _say("no waits", *await rounds(sweeper))
        first, second = _FILL.split(";")
        await connection.execute(first)
        await connection.execute(second, number)
        await connection.execute("vacuum analyze")
        _say(f"{number:,} waits", *await rounds(sweeper))
    finally:
        await store.close()
        await connection.close()


def _say(what: str, elapsed: float, used: float) -> None:
    sys.stdout.write(f"{what}: a round takes {elapsed:.2f} ms, {used:.2f} ms of CPU time of the server\n")


async def main() -> None:
    number = int(sys.argv[1]) if len(sys.argv) > 1 else _WAITS
    async with fresh_postgres() as (server, _):
        await measure(server.url(), number)


if __name__ == "__main__":
    asyncio.run(main())
