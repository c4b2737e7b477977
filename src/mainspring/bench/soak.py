"""Soak: full load for minutes or hours, and whether it ends as it began: throughput, memory, tables and indexes.

Plain jobs, jobs under limits, workflows and cron jobs run all the time, on two servers and a worker, while another
session keeps a snapshot open, so that PostgreSQL cannot remove dead rows behind it, and retention removes history.
History grows with each run until retention removes its day. Everything else has to stay as large as it was.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress

import asyncpg
import httpx
import msgspec
import uvloop

from mainspring.bench.arena import Arena, empty_arena, fresh_postgres, until
from mainspring.bench.cron_stream import CronStream
from mainspring.bench.figures import progress, show
from mainspring.bench.memory import memory_of_tree
from mainspring.bench.throughput import payload
from mainspring.roles.retention import HISTORY_VARIABLE

_BATCH = 200
_BACKLOG = 4000  # jobs that are submitted and have not ended
_KEYS = 100
_CRONS = 16
_SAMPLES = 60  # at most so many are shown
_PART = 600.0  # seconds of the first and the last part: ten minutes, or a third of a shorter soak
_OFF = 0.05  # how far the last part may be from the first
_GROWTH = 0.10  # how much more memory and disk may be used at the end than after the first part
_STEPS = [
    {"name": "first", "task": "bench.noop"},
    {"name": "second", "task": "bench.noop", "depends_on": ["first"]},
]
# What grows with each run, until retention removes a day of it.
_KEPT = ("run_history", "attempts", "log_chunks", "audit", "submissions", "missed_fires", "rollup", "task_rollup")
_ENDED = """
select coalesce(sum(pg_stat_get_tuples_inserted(inhrelid)), 0)::bigint from pg_inherits
where inhparent = 'mainspring.run_history'::regclass
"""
_SIZES = """
select c.relname as name, c.relkind::text as kind, pg_relation_size(c.oid)::bigint as bytes
from pg_class c where c.relnamespace = 'mainspring'::regnamespace and c.relkind in ('r', 'i')
"""
_OLD_DAY = "select mainspring.add_partition('run_history', current_date - 2)"
_OLD_PARTITIONS = """
select count(*) from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent = 'mainspring.run_history'::regclass
  and c.relname < 'run_history_' || to_char(current_date - 1, 'YYYYMMDD')
"""


class Sample(msgspec.Struct, frozen=True):
    """At a time: how many runs have ended, memory by process in megabytes, bytes of what stays and of what is kept."""

    seconds: float
    ended: int
    memory_mb: dict[str, float]
    live_bytes: int
    kept_bytes: int
    largest: dict[str, int]


class Soak:
    def __init__(self, arena: Arena, connection: asyncpg.Connection) -> None:
        self._arena = arena
        self._connection = connection
        self._submitted = 0
        self._began = time.monotonic()
        self.samples: list[Sample] = []

    async def load(self) -> None:
        """Keep the backlog full."""
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(httpx.AsyncClient(headers=self._arena.headers, timeout=60))
            connection = await self._arena.connect()
            stack.push_async_callback(connection.close)
            workflow = await self._workflow(client)
            for turn in range(1_000_000_000):
                await self._room(connection)
                url = self._arena.servers[turn % len(self._arena.servers)].url
                answer = await client.post(f"{url}/v1/jobs:batch", content=_batch(turn))
                if answer.status_code == 429:
                    await asyncio.sleep(float(answer.headers["retry-after"]))
                    continue
                answer.raise_for_status()
                self._submitted += _BATCH
                if turn % 10 == 0:
                    (await client.post(f"{url}/v1/workflows/{workflow}:runNow", json={})).raise_for_status()

    async def _room(self, connection: asyncpg.Connection) -> None:
        """Wait until fewer jobs than the backlog have not ended."""

        async def found() -> bool:
            ended: int = await connection.fetchval(_ENDED)
            return self._submitted - ended < _BACKLOG

        await until(found, "jobs end", within=600.0, every=0.05)

    async def _workflow(self, client: httpx.AsyncClient) -> str:
        answer = await client.post(f"{self._arena.server_url}/v1/workflows", json={"steps": _STEPS})
        answer.raise_for_status()
        found: str = answer.json()["workflow_id"]
        return found

    async def sample(self) -> None:
        rows = await self._connection.fetch(_SIZES)
        kept = [row for row in rows if row["name"].startswith(_KEPT)]
        live = [row for row in rows if not row["name"].startswith(_KEPT)]
        largest = sorted(live, key=lambda row: -row["bytes"])[:8]
        self.samples.append(
            Sample(
                seconds=round(time.monotonic() - self._began, 1),
                ended=await self._connection.fetchval(_ENDED),
                memory_mb={name: memory_of_tree(pid) for name, pid in self._arena.processes.items()},
                live_bytes=sum(row["bytes"] for row in live),
                kept_bytes=sum(row["bytes"] for row in kept),
                largest={row["name"]: row["bytes"] for row in largest},
            )
        )


def _batch(turn: int) -> bytes:
    """Nine of ten jobs are plain, the others under a limit."""
    jobs = [
        f'{{"task":"bench.noop","payload":{payload(number, 200, _KEYS)}{_LIMIT if number % 10 == 0 else ""}}}'
        for number in range(turn * _BATCH, (turn + 1) * _BATCH)
    ]
    return f'{{"jobs":[{",".join(jobs)}]}}'.encode()


_LIMIT = ',"concurrency":{"key":"payload.key","limit":2}'


async def run(minutes: float, *, snapshot: bool = True) -> dict[str, object]:
    seconds, every = minutes * 60, max(minutes * 60 / 120, 1.0)
    with progress() as bar:
        going = bar.add_task("soak", total=round(seconds))
        async with AsyncExitStack() as stack:
            postgres, folder = await stack.enter_async_context(fresh_postgres())
            arena = await stack.enter_async_context(empty_arena(postgres, folder, {HISTORY_VARIABLE: "1"}))
            connection = await arena.connect()
            stack.push_async_callback(connection.close)
            await connection.execute(_OLD_DAY)
            for _ in range(2):
                await arena.start_server()
            await arena.start_worker(arena.server_url)
            if snapshot:
                await _open_snapshot(arena, stack)
            crons = CronStream(arena.server_url, arena.headers, jobs=_CRONS)
            await crons.start()
            soak = Soak(arena, connection)
            loading = asyncio.create_task(soak.load())
            try:
                while (gone := time.monotonic() - soak._began) < seconds:
                    bar.update(going, completed=round(gone))
                    await soak.sample()
                    await asyncio.wait({loading}, timeout=every)
                    if loading.done():
                        loading.result()
                await soak.sample()
            finally:
                loading.cancel()
                with suppress(asyncio.CancelledError):
                    await loading
            old = await connection.fetchval(_OLD_PARTITIONS)
            await crons.pause()
            await until(lambda: _nothing_runs(connection), "all runs have ended", within=600.0, every=0.5)
            doubled, unrecorded = await crons.faults(connection)
    return judged(soak.samples) | {
        "snapshot": snapshot,
        "old_partitions_left": old,
        "fires": crons.fired,
        "double_fires": doubled,
        "missed_not_recorded": unrecorded,
    }


async def _open_snapshot(arena: Arena, stack: AsyncExitStack) -> None:
    """A session of another program, such as a dump or a forgotten console."""
    other = await asyncpg.connect(arena.database_url, server_settings={"application_name": "somebody else"})
    stack.push_async_callback(other.close)
    await other.execute("begin isolation level repeatable read read only")
    await other.fetchval("select count(*) from mainspring.jobs")


async def _nothing_runs(connection: asyncpg.Connection) -> bool:
    return not await connection.fetchval("select exists (select from mainspring.runs)")


def judged(samples: Sequence[Sample]) -> dict[str, object]:
    """The first part begins after a tenth of the time, when the caches are warm."""
    end = samples[-1].seconds
    part = min(_PART, end / 3)
    first = _between(samples, end / 10, end / 10 + part)
    last = _between(samples, end - part, end)
    rates = [_rate(first), _rate(last)]
    memory = {
        name: [_median([one.memory_mb.get(name, 0.0) for one in part_]) for part_ in (first, last)]
        for name in samples[-1].memory_mb
    }
    live = [first[-1].live_bytes, last[-1].live_bytes]
    wrong = []
    if rates[1] < rates[0] * (1 - _OFF):
        wrong.append(f"throughput fell by {(1 - rates[1] / rates[0]) * 100:.1f} %")
    wrong += [f"{name} has grown from {a:.0f} to {b:.0f} MB" for name, (a, b) in memory.items() if _grew(a, b, 8.0)]
    if _grew(live[0], live[1], 8 * 1024 * 1024):
        wrong.append(f"tables and indexes have grown from {live[0] / 2**20:.0f} to {live[1] / 2**20:.0f} MB")
    return {
        "verdict": "flat" if not wrong else "; ".join(wrong),
        "seconds": end,
        "part_s": round(part),
        "ended": samples[-1].ended,
        "first_part_per_s": rates[0],
        "last_part_per_s": rates[1],
        "last_to_first": round(rates[1] / rates[0], 3) if rates[0] else 0.0,
        "memory_mb_first_last": memory,
        "live_bytes_first_last": live,
        "kept_bytes_per_run": round(samples[-1].kept_bytes / max(samples[-1].ended, 1)),
        "largest": samples[-1].largest,
        "samples": samples[:: max(1, len(samples) // _SAMPLES)],
    }


def _between(samples: Sequence[Sample], since: float, until_: float) -> list[Sample]:
    found = [one for one in samples if since <= one.seconds <= until_]
    return found if len(found) > 1 else list(samples[-2:])


def _rate(part: Sequence[Sample]) -> float:
    return round((part[-1].ended - part[0].ended) / max(part[-1].seconds - part[0].seconds, 0.001), 1)


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def _grew(before: float, after: float, least: float) -> bool:
    return after > before * (1 + _GROWTH) and after - before > least


def main(minutes: float, as_json: bool, *, snapshot: bool = True) -> int:
    """The exit code is 1 if it did not end as it began, or if a fire was lost or happened twice."""
    figures = uvloop.run(run(minutes, snapshot=snapshot))
    if as_json:
        figures = msgspec.to_builtins(figures)
    else:
        del figures["samples"]
    show("soak", figures, as_json)
    return int(figures["verdict"] != "flat" or bool(figures["double_fires"] or figures["missed_not_recorded"]))
