"""A database with very many recurring jobs, for measurements: `python -m tests.store.many_jobs URL 1000000`.

None of them fires within an hour. Their schedules are a mixture: full hours that everybody chooses, steps, five zones,
`H` with a seed of its own, and intervals with anchors of their own.
"""

from __future__ import annotations

import asyncio
import sys

import asyncpg

_INSERT = """
with lane as (
    insert into mainspring.lanes (tenant_id, queue, priority, task) values ($1, 'many', 1, 'noop')
    on conflict do nothing returning lane_id
), known as (
    select lane_id from lane
    union all select lane_id from mainspring.lanes where tenant_id = $1 and queue = 'many' and task = 'noop'
    limit 1
)
insert into mainspring.jobs
    (tenant_id, job_id, lane_id, shard, status, max_attempts, one_time, id_generated, next_fire_at, created_at,
     updated_at, schedule)
select $1, 'many-' || n, (select lane_id from known), n % 128, 1, 4, n % 20 = 19, false,
       date_trunc('second', clock_timestamp()) + interval '1 hour' + n % 86400 * interval '1 second',
       clock_timestamp(), clock_timestamp(),
       case
           when n % 20 < 4 then '{"kind":"CRON","cron":"0 * * * *"}'
           when n % 20 < 8 then format('{"kind":"CRON","cron":"0 %s * * MON-FRI","timezone":"%s"}', n % 24,
               (array['Europe/Berlin', 'America/New_York', 'Asia/Tokyo', 'Asia/Kolkata', 'Europe/London'])[1 + n % 5])
           when n % 20 < 12 then format('{"kind":"CRON","cron":"%s %s * * *"}', n / 24 % 60, n % 24)
           when n % 20 < 14 then '{"kind":"CRON","cron":"*/5 * * * *"}'
           when n % 20 < 17 then format('{"kind":"CRON","cron":"H H * * *","seed":%s}', hashint8(n) & 2147483647)
           when n % 20 < 19 then format('{"kind":"INTERVAL","every":%s,"anchor":"%s"}',
               (array[300, 900, 3600, 86400])[1 + n % 4],
               to_char(timestamp '2026-01-01' + n * interval '37 second', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))
           else '{"kind":"FUTURE"}'
       end::json
from generate_series($2::bigint, $3::bigint - 1) as n
"""


async def add_many(connection: asyncpg.Connection, count: int, tenant: int = 1, at_once: int = 50_000) -> None:
    for first in range(0, count, at_once):
        await connection.execute(_INSERT, tenant, first, min(count, first + at_once), timeout=600)
    await connection.execute("vacuum analyze mainspring.jobs", timeout=600)


async def _main(url: str, count: int) -> None:
    connection = await asyncpg.connect(url)
    try:
        await add_many(connection, count)
    finally:
        await connection.close()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], int(sys.argv[2])))
