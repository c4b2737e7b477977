"""Jitter: a million schedules, due together, whose jitter of two minutes spreads them. Measures how late their tasks
start."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
import uvloop

from mainspring.bench import fired
from mainspring.bench.arena import fresh_postgres, product
from mainspring.bench.figures import progress, show
from mainspring.bench.recorded import until_recorded
from mainspring.bench.registration import check_in_time, register, second_ahead

SCHEDULES = 1_000_000
SECONDS = 120.0
_HEAD_START = 8.0  # longer than the scheduler's look-ahead
_PROBE = 50  # one in so many schedules is registered first, to know how long the others take

# A task returns the time at which it started.
_LAGS = """
select percentile_disc(array[0.5, 0.99, 1]) within group (order by
           ((result #>> '{}')::float8 - extract(epoch from scheduled_for)::float8) * 1000),
       percentile_disc(array[0.5, 0.99, 1]) within group (order by
           extract(epoch from fired_at - scheduled_for)::float8 * 1000)
from mainspring.run_history
"""


class JitterSizes(msgspec.Struct):
    """How many schedules there are, and in how many seconds they are due."""

    schedules: int = SCHEDULES
    seconds: float = SECONDS


def main(sizes: JitterSizes, as_json: bool) -> int:
    show("jitter", uvloop.run(run(sizes)), as_json)
    return 0


async def run(sizes: JitterSizes, *, head_start: float = _HEAD_START) -> dict[str, object]:
    with progress() as bar:
        async with fresh_postgres() as (postgres, folder), product(postgres, folder) as arena:
            registering = bar.add_task("registered", total=sizes.schedules)
            recording = bar.add_task("run", total=sizes.schedules)
            probe = max(1, sizes.schedules // _PROBE)
            probed = await register(arena, probe, lambda _: _manual(), bar, registering)
            rest = sizes.schedules
            first = second_ahead(head_start + rest * probed.seconds_each * 3)
            bar.update(registering, completed=0)
            registered = await register(arena, rest, lambda _: _daily(first, sizes), bar, registering)
            check_in_time(first)
            connection = await arena.connect()
            try:
                await fired.until_fired(connection, first + timedelta(seconds=sizes.seconds))
                await until_recorded(connection, bar, recording)
                await fired.check_ran_once(connection, registered.job_ids)
                starts, fires = await connection.fetchrow(_LAGS)
            finally:
                await connection.close()
            peak = arena.servers[0].peak_mb()
    return {
        "schedules": sizes.schedules,
        "seconds": sizes.seconds,
        **{f"lag_{name}_ms": round(value, 2) for name, value in zip(("p50", "p99", "max"), starts, strict=True)},
        **{f"fired_{name}_ms": round(value, 2) for name, value in zip(("p50", "p99", "max"), fires, strict=True)},
        "rss_mb": None if peak is None else round(peak, 1),
        "register_per_s": round(rest / registered.seconds),
    }


def _manual() -> dict[str, object]:
    return {"task": "bench.moment", "schedule": "manual"}


def _daily(first: datetime, sizes: JitterSizes) -> dict[str, object]:
    schedule = {"every": "1d", "anchor": first.isoformat(), "jitter": sizes.seconds}
    return {"task": "bench.moment", "schedule": schedule}
