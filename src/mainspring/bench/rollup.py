"""Measures what it costs to make rollups of ended runs, in CPU time of PostgreSQL and of the server, for each run."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import uvloop

from mainspring.bench.arena import fresh_postgres
from mainspring.bench.cpu import cpu_seconds
from mainspring.bench.figures import progress, show
from mainspring.bench.generated import add_lanes, add_runs
from mainspring.kernel.clock import SystemClock
from mainspring.store import rollups
from mainspring.store.embedded import EmbeddedPostgres
from mainspring.store.migrate import migrate
from mainspring.store.pool import connect, open_store
from mainspring.upkeep.rollup_keeper import RollupKeeper

RUNS = 800_000
PER_FOLD = 400_000  # twenty seconds of 20,000 runs a second: the rest of a busy keeper
TASKS = (1, 100)


def main(runs: int | None, as_json: bool) -> int:
    show("fold", uvloop.run(run(runs or RUNS)), as_json)
    return 0


async def run(runs: int, per_fold: int = PER_FOLD) -> dict[str, object]:
    """1 % of the runs failed, and 3 % were tried again."""
    figures: dict[str, object] = {"runs": runs}
    with progress() as bar:
        going = bar.add_task("folded", total=len(TASKS))
        async with fresh_postgres() as (postgres, _):
            for tasks in TASKS:
                cost, folds = await _measure(postgres, runs, tasks, per_fold)
                figures |= {f"tasks_{tasks}_us_per_run": round(cost, 3), f"tasks_{tasks}_folds": folds}
                bar.advance(going)
    figures["us_per_run"] = max(value for name, value in figures.items() if name.endswith("_us_per_run"))  # type: ignore[type-var]
    return figures


async def _measure(postgres: EmbeddedPostgres, runs: int, tasks: int, per_fold: int) -> tuple[float, int]:
    """Microseconds of CPU time for each run, and the number of folds."""
    name = f"fold_{tasks}"
    admin = await connect(postgres.url("postgres"), application="bench")
    await admin.execute(f"create database {name}")
    await admin.close()
    await migrate(postgres.url(name))
    connection = await connect(postgres.url(name), application="bench")
    store = await open_store(postgres.url(name), reads=1)
    try:
        # Twenty seconds of runs in each minute: the folds of a busy server, without those in between.
        minutes = max(1, runs // per_fold)
        end = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=1)
        lanes = await add_lanes(connection, tasks)
        for minute in range(minutes):
            begin = end - (minutes - minute) * timedelta(minutes=1) + timedelta(seconds=10)
            await add_runs(connection, lanes, runs // minutes, begin, begin + timedelta(seconds=20))
        await connection.execute("vacuum (analyze)")  # as a server's database, which autovacuum visits each minute
        async with store.reads.acquire() as own:
            await rollups.begin_watermark(own)
            await own.execute(
                "update mainspring.rollup_watermark set folded_until = $1", end - minutes * timedelta(minutes=1)
            )
            backend = await own.fetchval("select pg_backend_pid()")
        keeper = RollupKeeper(store, SystemClock())
        cpu, own_cpu, folded, folds = cpu_seconds(backend), time.process_time(), 0, 0
        while (read := await keeper.roll_up()) is not None:
            folded, folds = folded + read, folds + (read > 0)
        spent = cpu_seconds(backend) - cpu + time.process_time() - own_cpu
        ended = await connection.fetchval(
            "select sum(succeeded + failed)::bigint from mainspring.rollups where span = 1 and task = '' and queue = ''"
        )
    finally:
        await connection.close()
        await store.close()
    if ended != runs // minutes * minutes:
        raise AssertionError(f"{runs} runs ended, and the rollups have {ended} of them")
    return spent / ended * 1e6, folds
