"""Logs: how soon a server finds a rare word and a common one in the output of many runs, stored in PostgreSQL, and what
the index of their words costs: where output is stored, and for the blocks that are made of it afterwards."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import NamedTuple

import asyncpg
import httpx
import uvloop
from rich.progress import Progress

from mainspring.bench.arena import Arena, BenchWorker, empty_arena, fresh_postgres, submit_batch
from mainspring.bench.cpu import cpu_seconds_of_tree
from mainspring.bench.figures import progress, show
from mainspring.bench.generated import add_lanes, add_runs
from mainspring.bench.recorded import until_recorded
from mainspring.domain.log_words import words_in
from mainspring.kernel.clock import SystemClock
from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.store.log_table import joined, pack
from mainspring.store.pool import open_store
from mainspring.upkeep.log_block_maker import LogBlockMaker

_POSTGRES = {"shared_buffers": "256MB", "max_wal_size": "4GB"}
_AT_ONCE = 2000  # runs whose output is copied at once
_TEXTS = 4000  # different ones; then they are repeated
_PRINTING = 2000  # runs that really print, for the cost
_BATCH = 500
_RARE, _COMMON, _ABSENT = "pinkelephant", "connected", "purplezebra"
_TABLES = ("log_chunks", "log_blocks")
_SIZE = "select sum(pg_total_relation_size(relid)) from pg_partition_tree($1::text::regclass)"
_TIMES = "^log_chunks_[0-9]{8}_stored_at_idx"
_OLDEST = """
select l.task, h.job_id, case h.state when 10 then 'success' else 'failed' end
from mainspring.run_history h join mainspring.lanes l using (lane_id) order by h.run_id limit 1
"""
_PAGE = 100  # logs
# run_id, lane_id, attempt, fence, worker_id, ended_at
_RUNS = """
select run_id, lane_id, attempt, fence, worker_id, ended_at from mainspring.run_history
where $1::uuid is null or run_id > $1 order by run_id limit $2
"""
_CHUNKS = "select size, data from mainspring.log_chunks where run_id in (select run_id from mainspring.run_history)"
_CHUNK_COLUMNS = ("run_id", "stored_at", "first_byte", "tenant_id", "fence", "size", "data", "words", "lane_id")
_LOG_COLUMNS = (
    *("run_id", "attempt", "fence", "tenant_id", "worker_id", "bytes", "ended", "created_at", "updated_at"),
)

Stored = tuple[int, bytes, bytes | None]  # of a chunk: size, data, words


@dataclass(frozen=True, slots=True)
class LogSizes:
    """`size`: bytes of output of each run. `printing`: how many runs really print, for the cost."""

    runs: int
    size: int
    printing: int = _PRINTING


class Oldest(NamedTuple):
    task: str
    job_id: str
    status: str


class SearchFigures(NamedTuple):
    """Seconds until the first hit, and until the end; how many logs were found."""

    first: float | None
    whole: float
    logs: int


def main(sizes: LogSizes, as_json: bool) -> int:
    show("logs", uvloop.run(run(sizes)), as_json)
    return 0


async def run(sizes: LogSizes) -> dict[str, object]:
    with progress() as bar:
        cost = await _cost(sizes, bar) if sizes.printing else {}
        found = await _searches(sizes, bar)
    return {"runs": sizes.runs, **found, **cost}


async def _searches(sizes: LogSizes, bar: Progress) -> dict[str, object]:
    async with fresh_postgres(_POSTGRES) as (postgres, folder), empty_arena(postgres, folder) as arena:
        connection = await arena.connect()
        try:
            began = time.perf_counter()
            stored, oldest = await _fill(connection, sizes, bar)
            filled = time.perf_counter() - began
            blocks = await _make_blocks(arena, connection, sizes.runs)
            on_disk = [await connection.fetchval(_SIZE, f"mainspring.{name}") for name in _TABLES]
        finally:
            await connection.close()
        await arena.start_server(scheduler=False)
        async with httpx.AsyncClient(base_url=arena.server_url, headers=arena.headers, timeout=60) as client:
            await _search(client, {"text": _COMMON}, most=1)  # the first request of a server loads modules
            before = sum(arena.cpu_seconds())
            rare = await _search(client, {"text": _RARE})
            rare_cpu = sum(arena.cpu_seconds()) - before
            common = await _search(client, {"text": _COMMON}, most=_PAGE)
            absent = await _search(client, {"text": _ABSENT})
            pattern = await _search(client, {"regex": f"ERROR a {_RARE} was .een"}) if _regex_installed() else None
            narrowed = {
                name: await _search(client, {"text": _RARE, name: value})
                for name, value in (("task", oldest.task), ("queue", "default"), ("status", oldest.status))
            }
            job = await _search(client, {"text": _RARE, "job": oldest.job_id})
    if [rare.logs, absent.logs, job.logs, *(each.logs for each in narrowed.values())] != [1, 0, 1, 1, 1, 1]:
        raise AssertionError(f"a search has not found the one run that has {_RARE!r}, or more than it")
    return {
        "output_mb": round(stored / 1e6, 1),
        "on_disk_mb": round(float(on_disk[0]) / 1e6, 1),
        "blocks_mb": round(float(on_disk[1]) / 1e6, 1),
        "fill_s": round(filled, 1),
        **blocks,
        "rare_logs": rare.logs,
        "rare_first_s": rare.first,
        "rare_whole_s": rare.whole,
        "rare_cpu_s": round(rare_cpu, 2),
        "common_logs": common.logs,
        "common_first_s": common.first,
        "common_logs_s": common.whole,
        "absent_s": absent.whole,
        "regex_s": None if pattern is None else pattern.whole,
        **{f"{name}_s": found.whole for name, found in narrowed.items()},
        "job_s": job.whole,
    }


def _regex_installed() -> bool:
    return find_spec("re2") is not None


async def _make_blocks(arena: Arena, connection: asyncpg.Connection, runs: int) -> dict[str, object]:
    """The blocks of all output, as a server makes them, and the CPU time of that."""
    await connection.execute("select brin_summarize_new_values(c.oid) from pg_class c where c.relname ~ $1", _TIMES)
    store = await open_store(arena.database_url)
    try:
        maker, made = LogBlockMaker(store, SystemClock()), 0
        cpu, own_cpu = sum(arena.cpu_seconds()), time.process_time()
        while some := await maker.make():
            made += some
        spent = sum(arena.cpu_seconds()) - cpu + time.process_time() - own_cpu
    finally:
        await store.close()
    return {"blocks": made, "blocks_ms_per_run": round(spent * 1000 / runs, 4)}


async def _cost(sizes: LogSizes, bar: Progress) -> dict[str, object]:
    """The CPU time of server, worker and PostgreSQL for a run that prints so much, and that of finding the words of its
    chunks, as they were stored."""
    async with fresh_postgres(_POSTGRES) as (postgres, folder), empty_arena(postgres, folder) as arena:
        server = await arena.start_server()
        worker = await arena.start_worker(server.url)
        await _print(arena, sizes, range(_BATCH), bar)  # what is loaded and planned once
        before = _cpu(arena, worker)
        await _print(arena, sizes, range(_BATCH, _BATCH + sizes.printing), bar)
        spent = _cpu(arena, worker) - before
        connection = await arena.connect()
        try:
            chunks = [joined([(0, size, data)], 0, size) for size, data in await connection.fetch(_CHUNKS)]
        finally:
            await connection.close()
    began = time.process_time()
    for chunk in chunks:
        words_in(chunk)
    words = (time.process_time() - began) * sizes.printing / (sizes.printing + _BATCH)
    return {
        "printing_runs": sizes.printing,
        "cpu_ms_per_printing_run": round(spent * 1000 / sizes.printing, 3),
        "words_ms_per_printing_run": round(words * 1000 / sizes.printing, 3),
        "words_percent": round(100 * words / spent, 1),
    }


async def _print(arena: Arena, sizes: LogSizes, numbers: Sequence[int], bar: Progress) -> None:
    """Let runs print, and wait for their end."""
    going = bar.add_task("printing runs", total=len(numbers))
    connection = await arena.connect()
    try:
        async with httpx.AsyncClient(headers=arena.headers, timeout=60) as client:
            for first in range(0, len(numbers), _BATCH):
                jobs = (
                    f'{{"task":"bench.print","payload":{{"number":{number},"size":{sizes.size}}}}}'
                    for number in numbers[first : first + _BATCH]
                )
                await submit_batch(client, arena.server_url, f'{{"jobs":[{",".join(jobs)}]}}'.encode())
            await until_recorded(connection, bar, going)
    finally:
        await connection.close()


def _cpu(arena: Arena, worker: BenchWorker) -> float:
    return sum(arena.cpu_seconds()) + cpu_seconds_of_tree(worker.pid)


async def _fill(connection: asyncpg.Connection, sizes: LogSizes, bar: Progress) -> tuple[int, Oldest]:
    """Ended runs with output. The oldest one has the rare word, so that a search looks at all others first. Return the
    bytes of output, and that run."""
    await connection.execute("set synchronous_commit = off")
    lanes = await add_lanes(connection, tasks=100)
    now = datetime.now(UTC)
    await add_runs(connection, lanes, sizes.runs, now - timedelta(hours=1), now, jobs=max(1, sizes.runs // 100))
    rare = _stored(_output(0, sizes.size) + f"ERROR a {_RARE} was seen\n".encode())
    texts = [_stored(_output(_mixed(number), sizes.size)) for number in range(min(_TEXTS, sizes.runs))]
    total, after = 0, None
    going = bar.add_task("output", total=sizes.runs)
    while rows := await connection.fetch(_RUNS, after, _AT_ONCE):
        printed = [texts[_mixed(row["run_id"].int) % len(texts)] for row in rows]
        if after is None:
            printed[0] = rare
        total += sum(size for size, _, _ in printed)
        for table, records, columns in (
            ("log_chunks", _chunks(rows, printed), _CHUNK_COLUMNS), ("run_logs", _logs(rows, printed), _LOG_COLUMNS),
        ):  # fmt: skip
            await connection.copy_records_to_table(table, schema_name="mainspring", records=records, columns=columns)
        after = rows[-1]["run_id"]
        bar.advance(going, len(rows))
    await connection.execute("vacuum (analyze)")  # as autovacuum does
    return total, Oldest(*await connection.fetchrow(_OLDEST))


def _stored(data: bytes) -> Stored:
    return len(data), pack(data), words_in(data)


def _chunks(rows: list[asyncpg.Record], printed: list[Stored]) -> Iterator[tuple[object, ...]]:
    for row, (size, data, words) in zip(rows, printed, strict=True):
        yield row["run_id"], row["ended_at"], 0, DEFAULT_TENANT, row["fence"], size, data, words, row["lane_id"]


def _logs(rows: list[asyncpg.Record], printed: list[Stored]) -> Iterator[tuple[object, ...]]:
    for row, (size, _, _) in zip(rows, printed, strict=True):
        at = row["ended_at"]
        yield row["run_id"], row["attempt"], row["fence"], DEFAULT_TENANT, row["worker_id"], size, True, at, at


def _mixed(number: int) -> int:
    return (number * 2654435761) & 0xFFFFFFFF


def _output(number: int, size: int) -> bytes:
    """Lines that differ from text to text. The first one has the common word."""
    lines = [f"INFO {_COMMON} to db-{number % 16}.example.com as account {number % 5000}\n"]
    length = len(lines[0])
    while length < size:
        number = (number * 1103515245 + 12345) & 0x7FFFFFFF
        lines.append(
            f"INFO order {number} of customer {number % 99991} charged {number % 9000} cents in {number % 89} ms\n"
        )
        length += len(lines[-1])
    return "".join(lines).encode()


async def _search(client: httpx.AsyncClient, asked: dict[str, str], most: int | None = None) -> SearchFigures:
    """Search page by page, to the end or until `most` logs were found."""
    began, first, found, cursor = time.perf_counter(), None, 0, None
    while True:
        query = {**asked, "limit": str(_PAGE if most is None else most), "lines": "1"}
        answer = await client.get("/v1/logs", params=query if cursor is None else {**query, "cursor": cursor})
        answer.raise_for_status()
        page = answer.json()
        found += len(page["hits"])
        if first is None and found:
            first = time.perf_counter() - began
        cursor = page.get("next")
        if cursor is None or (most is not None and found >= most):
            break
    whole = time.perf_counter() - began
    return SearchFigures(None if first is None else round(first, 3), round(whole, 3), found)
