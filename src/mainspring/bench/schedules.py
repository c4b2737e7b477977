"""Schedules: 100,000 cron jobs, a fifth of them due in the same second. Measures how soon all of those have fired."""

from __future__ import annotations

from datetime import UTC, datetime

import uvloop

from mainspring.bench import fired
from mainspring.bench.arena import fresh_postgres, product
from mainspring.bench.figures import progress, show
from mainspring.bench.recorded import until_recorded
from mainspring.bench.registration import check_in_time, daily_at, later_in_the_week, register, second_ahead

JOBS = 100_000
DUE_SHARE = 5  # one in five jobs is due in the chosen second
_HEAD_START = 6.0  # longer than the scheduler's look-ahead


def main(jobs: int | None, as_json: bool) -> int:
    show("schedules", uvloop.run(run(jobs or JOBS)), as_json)
    return 0


async def run(jobs: int, *, head_start: float = _HEAD_START) -> dict[str, object]:
    due = max(1, jobs // DUE_SHARE)
    with progress() as bar:
        async with fresh_postgres(fired.POSTGRES) as (postgres, folder), product(postgres, folder) as arena:
            registering = bar.add_task("registered", total=jobs)
            recording = bar.add_task("run", total=due)
            today = datetime.now(UTC)
            far = await register(
                arena, jobs - due, lambda n: _request(later_in_the_week(today, n), n), bar, registering
            )
            moment = second_ahead(head_start + due * far.seconds_each * 2)
            near = await register(arena, due, lambda n: _request(daily_at(moment), n), bar, registering)
            check_in_time(moment)
            connection = await arena.connect()
            try:
                await fired.until_fired(connection, moment)
                await until_recorded(connection, bar, recording)
                await fired.check_fires(connection, near.job_ids, moment)
                last_fire = await fired.last_fire(connection, moment)
                last_end = await connection.fetchval("select max(ended_at) from mainspring.run_history")
            finally:
                await connection.close()
            peak = arena.servers[0].peak_mb()
    return {
        "jobs": jobs,
        "register_per_s": round(jobs / (far.seconds + near.seconds)),
        "fired": due,
        "last_fire_lag_s": round(last_fire, 3),
        "last_end_lag_s": round((last_end - moment).total_seconds(), 3),
        "rss_mb": None if peak is None else round(peak, 1),
    }


def _request(cron: str, number: int) -> dict[str, object]:
    return {"task": "bench.noop", "schedule": cron, "payload": {"number": number}}
