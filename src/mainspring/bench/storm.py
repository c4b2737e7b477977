"""Storm: a million cron jobs, many of them due in the same second, a few of these critical. Measures how late the last
critical one starts, how soon all have fired, the memory of the server, and how fast jobs are registered."""

from __future__ import annotations

from datetime import UTC, datetime

import asyncpg
import msgspec
import uvloop

from mainspring.bench import fired
from mainspring.bench.arena import fresh_postgres, product
from mainspring.bench.figures import progress, show
from mainspring.bench.recorded import until_recorded
from mainspring.bench.registration import check_in_time, daily_at, later_in_the_week, register, second_ahead
from mainspring.domain.job import Priority

JOBS = 1_000_000
DUE = 100_000
CRITICAL = 1000
_HEAD_START = 8.0  # longer than the scheduler's look-ahead

# A critical job returns the time at which it started.
_CRITICAL_STARTS = """
select max((h.result #>> '{}')::float8 - extract(epoch from h.scheduled_for)::float8) as started,
       max(extract(epoch from h.fired_at - h.scheduled_for)::float8) as fired, count(*)
from mainspring.run_history h join mainspring.lanes l on l.lane_id = h.lane_id where l.priority = $1
"""


class StormSizes(msgspec.Struct):
    """How many jobs there are, how many of them are due together, and how many of these are critical."""

    jobs: int = JOBS
    due: int = DUE
    critical: int = CRITICAL


def main(sizes: StormSizes, as_json: bool) -> int:
    show("storm", uvloop.run(run(sizes)), as_json)
    return 0


async def run(sizes: StormSizes, *, head_start: float = _HEAD_START) -> dict[str, object]:
    with progress() as bar:
        async with fresh_postgres(fired.POSTGRES) as (postgres, folder), product(postgres, folder) as arena:
            registering = bar.add_task("registered", total=sizes.jobs)
            recording = bar.add_task("run", total=sizes.due)
            today = datetime.now(UTC)
            far = await register(
                arena, sizes.jobs - sizes.due, lambda n: _request(later_in_the_week(today, n), n), bar, registering
            )
            moment = second_ahead(head_start + sizes.due * far.seconds_each * 2)
            near = await register(arena, sizes.due, lambda n: _due(sizes, moment, n), bar, registering)
            check_in_time(moment)
            connection = await arena.connect()
            try:
                await fired.until_fired(connection, moment)
                await until_recorded(connection, bar, recording)
                await fired.check_fires(connection, near.job_ids, moment)
                all_fired = await fired.last_fire(connection, moment)
                started, critical_fired = await _critical_lag(connection, sizes.critical)
            finally:
                await connection.close()
            peak = arena.servers[0].peak_mb()
    return {
        "jobs": sizes.jobs,
        "due": sizes.due,
        "critical": sizes.critical,
        "critical_max_lag_s": started,
        "critical_fired_s": critical_fired,
        "all_fired_s": round(all_fired, 3),
        "rss_mb": None if peak is None else round(peak, 1),
        "register_per_s": round(sizes.jobs / (far.seconds + near.seconds)),
    }


def _request(cron: str, number: int) -> dict[str, object]:
    return {"task": "bench.noop", "schedule": cron, "payload": {"number": number}}


def _due(sizes: StormSizes, moment: datetime, number: int) -> dict[str, object]:
    """Critical jobs are spread evenly over the others."""
    request = _request(daily_at(moment), number)
    if (number + 1) * sizes.critical // sizes.due > number * sizes.critical // sizes.due:
        request |= {"task": "bench.moment", "priority": "critical"}
    return request


async def _critical_lag(connection: asyncpg.Connection, critical: int) -> tuple[float | None, float | None]:
    """How many seconds after its time the last critical job started, and the last one fired."""
    started, last_fired, count = await connection.fetchrow(_CRITICAL_STARTS, int(Priority.CRITICAL))
    if count != critical:
        raise AssertionError(f"{critical} critical jobs were due, {count} ran")
    return (round(started, 3), round(last_fired, 3)) if critical else (None, None)
