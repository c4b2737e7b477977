"""Logs: how soon a server finds a rare word and a common one in the output of many runs, stored in PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg
import httpx
import uvloop

from mainspring.bench.arena import empty_arena, fresh_postgres
from mainspring.bench.figures import progress, show
from mainspring.bench.generated import add_lanes, add_runs
from mainspring.domain.log_words import words_in
from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.store.log_table import pack

_POSTGRES = {"shared_buffers": "256MB", "max_wal_size": "4GB"}
_AT_ONCE = 2000  # runs whose output is copied at once
_RARE, _COMMON = "pinkelephant", "connected"
_PAGE = 100  # logs
# run_id, lane_id, attempt, fence, worker_id, ended_at
_RUNS = """
select run_id, lane_id, attempt, fence, worker_id, ended_at from mainspring.run_history order by run_id
"""


@dataclass(frozen=True, slots=True)
class LogSizes:
    """`size`: bytes of output of each run."""

    runs: int
    size: int


def main(sizes: LogSizes, as_json: bool) -> int:
    show("logs", uvloop.run(run(sizes)), as_json)
    return 0


async def run(sizes: LogSizes) -> dict[str, object]:
    async with fresh_postgres(_POSTGRES) as (postgres, folder), empty_arena(postgres, folder) as arena:
        connection = await arena.connect()
        try:
            began = time.perf_counter()
            stored = await _fill(connection, sizes)
            filled = time.perf_counter() - began
            on_disk = await connection.fetchval(
                "select sum(pg_total_relation_size(relid)) from pg_partition_tree('mainspring.log_chunks')"
            )
        finally:
            await connection.close()
        await arena.start_server(scheduler=False)
        async with httpx.AsyncClient(base_url=arena.server_url, headers=arena.headers, timeout=60) as client:
            await _search(client, _COMMON, most=1)  # the first request of a server loads modules
            rare_first, rare_whole, rare_logs = await _search(client, _RARE)
            common_first, common_page, common_logs = await _search(client, _COMMON, most=_PAGE)
    return {
        "runs": sizes.runs,
        "output_mb": round(stored / 1e6, 1),
        "on_disk_mb": round(float(on_disk) / 1e6, 1),
        "fill_s": round(filled, 1),
        "rare_logs": rare_logs,
        "rare_first_s": rare_first,
        "rare_whole_s": rare_whole,
        "common_logs": common_logs,
        "common_first_s": common_first,
        "common_logs_s": common_page,
    }


async def _fill(connection: asyncpg.Connection, sizes: LogSizes) -> int:
    """Ended runs with output. The oldest one has the rare word, so that a search looks at all others first. Return the
    bytes of output."""
    await connection.execute("set synchronous_commit = off")
    lanes = await add_lanes(connection, tasks=100)
    now = datetime.now(UTC)
    await add_runs(connection, lanes, sizes.runs, now - timedelta(hours=1), now)
    rows = await connection.fetch(_RUNS)
    total = 0
    with progress() as bar:
        going = bar.add_task("output", total=len(rows))
        for first in range(0, len(rows), _AT_ONCE):
            batch = rows[first : first + _AT_ONCE]
            printed = [_output(row["run_id"], sizes.size, rare=first + n == 0) for n, row in enumerate(batch)]
            total += sum(map(len, printed))
            await connection.copy_records_to_table(
                "log_chunks", schema_name="mainspring", records=_chunks(batch, printed),
                columns=["run_id", "stored_at", "first_byte", "tenant_id", "fence", "size", "data", "words", "lane_id"],
            )  # fmt: skip
            await connection.copy_records_to_table(
                "run_logs", schema_name="mainspring", records=_logs(batch, printed),
                columns=[
                    "run_id", "attempt", "fence", "tenant_id", "worker_id", "bytes", "ended",
                    "created_at", "updated_at",
                ],
            )  # fmt: skip
            bar.advance(going, len(batch))
    await connection.execute("analyze")
    return total


def _chunks(rows: list[asyncpg.Record], printed: list[bytes]) -> Iterator[tuple[object, ...]]:
    for row, data in zip(rows, printed, strict=True):
        stored = (row["fence"], len(data), pack(data), words_in(data), row["lane_id"])
        yield (row["run_id"], row["ended_at"], 0, DEFAULT_TENANT, *stored)


def _logs(rows: list[asyncpg.Record], printed: list[bytes]) -> Iterator[tuple[object, ...]]:
    for row, data in zip(rows, printed, strict=True):
        at = row["ended_at"]
        yield (
            row["run_id"], row["attempt"], row["fence"], DEFAULT_TENANT, row["worker_id"], len(data), True, at, at,
        )  # fmt: skip


def _output(run_id: UUID, size: int, *, rare: bool) -> bytes:
    """Lines that differ from run to run. The first one has the common word."""
    number = run_id.int & 0xFFFFFFFF
    lines = [f"INFO {_COMMON} to db-{number % 16}.example.com as account {number % 5000}\n"]
    length = len(lines[0])
    while length < size:
        number = (number * 1103515245 + 12345) & 0x7FFFFFFF
        lines.append(
            f"INFO order {number} of customer {number % 99991} charged {number % 9000} cents in {number % 89} ms\n"
        )
        length += len(lines[-1])
    if rare:
        lines.append(f"ERROR a {_RARE} was seen\n")
    return "".join(lines).encode()


async def _search(client: httpx.AsyncClient, text: str, most: int | None = None) -> tuple[float, float, int]:
    """Search page by page. Return the seconds until the first hit, until the end or `most` logs, and how many logs were
    found."""
    began, first, found, cursor = time.perf_counter(), None, 0, None
    while True:
        query = {"text": text, "limit": str(_PAGE if most is None else most), "lines": "1"}
        answer = await client.get("/v1/logs", params=query if cursor is None else {**query, "cursor": cursor})
        answer.raise_for_status()
        page = answer.json()
        found += len(page["hits"])
        if first is None and found:
            first = time.perf_counter() - began
        cursor = page.get("next")
        if cursor is None or (most is not None and found >= most):
            break
    if first is None:
        raise AssertionError(f"{text!r} was not found")
    return round(first, 3), round(time.perf_counter() - began, 3), found
