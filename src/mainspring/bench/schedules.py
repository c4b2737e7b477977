"""Schedules: 100,000 cron jobs, a fifth of them due in the same second. Measures how soon all of those have fired."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

import asyncpg
import httpx
import msgspec
import uvloop
from rich.progress import Progress, TaskID

from mainspring.bench.arena import Arena, fresh_postgres, product, submit_batch, until
from mainspring.bench.figures import progress, show
from mainspring.bench.recorded import until_recorded
from mainspring.domain.transitions import StoredState
from mainspring.store import fires

JOBS = 100_000
DUE_SHARE = 5  # one in five jobs is due in the chosen second
BATCH = 1000
SENDERS = 2
_HEAD_START = 6.0  # longer than the scheduler's look-ahead
_LOOK_AGAIN = 0.1
# With commit timestamps, the time of a fire can be read from the row that it changed.
_POSTGRES = {"track_commit_timestamp": "on"}

Cron = Callable[[int], str]


def main(jobs: int | None, as_json: bool) -> int:
    show("schedules", uvloop.run(run(jobs or JOBS)), as_json)
    return 0


async def run(jobs: int, *, head_start: float = _HEAD_START) -> dict[str, object]:
    due = max(1, jobs // DUE_SHARE)
    with progress() as bar:
        async with fresh_postgres(_POSTGRES) as (postgres, folder), product(postgres, folder) as arena:
            registering = bar.add_task("registered", total=jobs)
            recording = bar.add_task("run", total=due)
            today = datetime.now(UTC)
            far = await register(arena, jobs - due, lambda number: _cron_in_the_year(today, number), bar, registering)
            moment = _second_ahead(head_start + due * far.seconds_each * 2)
            near = await register(arena, due, lambda _number: _cron_at(moment), bar, registering)
            if datetime.now(UTC) >= moment:
                raise AssertionError("the chosen second came before all jobs were registered; run the benchmark again")
            connection = await arena.connect()
            try:
                await _until_fired(connection, moment)
                await until_recorded(connection, bar, recording)
                await check_fires(connection, near.job_ids, moment)
                last_fire = await connection.fetchval(_LAST_FIRE, moment)
                last_end = await connection.fetchval("select max(ended_at) from mainspring.run_history")
            finally:
                await connection.close()
            peak = arena.servers[0].peak_mb()
    return {
        "jobs": jobs,
        "register_per_s": round(jobs / (far.seconds + near.seconds)),
        "fired": due,
        "last_fire_lag_s": round((last_fire - moment).total_seconds(), 3),
        "last_end_lag_s": round((last_end - moment).total_seconds(), 3),
        "rss_mb": None if peak is None else round(peak, 1),
    }


class Registered(msgspec.Struct):
    job_ids: list[str]
    seconds: float

    @property
    def seconds_each(self) -> float:
        return self.seconds / max(1, len(self.job_ids))


async def register(arena: Arena, jobs: int, cron: Cron, bar: Progress, task: TaskID) -> Registered:
    """Create `jobs` jobs through jobs:batch, each with the expression that `cron` returns for its number."""
    queue = iter([_body(range(start, min(start + BATCH, jobs)), cron) for start in range(0, jobs, BATCH)])
    job_ids: list[str] = []
    started = time.perf_counter()
    async with httpx.AsyncClient(headers=arena.headers, timeout=60) as client:
        await asyncio.gather(*(_send(arena, client, queue, job_ids, bar, task) for _ in range(SENDERS)))
    seconds = time.perf_counter() - started
    if len(set(job_ids)) != jobs:
        raise AssertionError(f"{jobs} jobs were sent and {len(set(job_ids))} accepted")
    return Registered(job_ids, seconds)


def _body(numbers: Sequence[int], cron: Cron) -> bytes:
    return msgspec.json.encode(
        [{"task": "bench.noop", "schedule": cron(number), "payload": {"number": number}} for number in numbers]
    )


async def _send(
    arena: Arena, client: httpx.AsyncClient, queue: Iterator[bytes], job_ids: list[str], bar: Progress, task: TaskID
) -> None:
    for body in queue:
        taken = await submit_batch(client, arena.server_url, body)
        job_ids.extend(taken)
        bar.advance(task, len(taken))


def _cron_in_the_year(today: datetime, number: int) -> str:
    """A different time for each number, once a year, neither soon nor just past."""
    moment = today + timedelta(days=30 + number % 300, seconds=number * 7919 % 86400)
    day = 28 if (moment.month, moment.day) == (2, 29) else moment.day  # a day that every year has
    return f"{moment.second} {moment.minute} {moment.hour} {day} {moment.month} *"


def _cron_at(moment: datetime) -> str:
    return f"{moment.second} {moment.minute} {moment.hour} * * *"


def _second_ahead(seconds: float) -> datetime:
    return (datetime.now(UTC) + timedelta(seconds=seconds + 1)).replace(microsecond=0)


async def _until_fired(connection: asyncpg.Connection, moment: datetime) -> None:
    """Wait until `moment` has passed and nothing is due, with cheap queries."""
    await asyncio.sleep((moment - datetime.now(UTC)).total_seconds() + _LOOK_AGAIN)
    shards = [row["shard"] for row in await connection.fetch("select shard from mainspring.shard_leases")]

    async def none_due() -> bool:
        late = await fires.oldest_due(connection, shards)
        return late is None or late < 0

    await until(none_due, "all jobs have fired", every=_LOOK_AGAIN)


_LAST_FIRE = "select max(pg_xact_commit_timestamp(xmin)) from mainspring.jobs where last_fired_for = $1"


async def check_fires(connection: asyncpg.Connection, job_ids: Sequence[str], moment: datetime) -> None:
    """Check that each of these jobs fired for `moment`, ran once and succeeded, and that nothing else fired or was
    missed."""
    rows = await connection.fetch("select job_id, scheduled_for, state from mainspring.run_history")
    ran = [row["job_id"] for row in rows]
    if len(ran) != len(job_ids) or set(ran) != set(job_ids):
        raise AssertionError(f"{len(job_ids)} jobs were due, {len(set(ran))} of them ran, {len(ran)} runs recorded")
    if any(row["scheduled_for"] != moment or row["state"] != StoredState.SUCCESS for row in rows):
        raise AssertionError("some runs have another scheduled time, or did not end with SUCCESS")
    if await connection.fetchval("select exists (select from mainspring.missed_fires)"):
        raise AssertionError("some fires were recorded as missed")
