"""The statements of the hot path read few rows for each row that they need, regardless of the statistics.

The tables have 120,000 runs and 100,000 jobs in every test. The tests differ in when ANALYZE ran: while the tables were
empty, while all runs were QUEUED, while all were RUNNING, and at the end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
import pytest

from mainspring.kernel.ids import uuid7, uuid7_batch
from mainspring.store import leases
from mainspring.store.pool import HOT_SETTINGS, LOG_SETTINGS
from mainspring.store.queries import load

from .fire_scene import LATE
from .rows import BEGINNING, a_worker

pytestmark = pytest.mark.anyio

BATCH = 100
WATCHED = ("runs", "jobs")
LANES = list(range(1, 11))  # lane 1 has the most runs
ELSEWHERE = 11  # a lane from which our worker cannot take; its runs are the oldest
US = UUID(int=1)

# Ids rise with $1, so that rows can be found again. Payloads make rows as wide as real ones.
RUNS = """
insert into mainspring.runs (run_id, tenant_id, lane_id, state, attempt, max_attempts, fence, scheduled_for, ready_at,
                             claimed_at, cancel_requested_at, claim_seq, worker_id, job_id, payload, deadline)
select lpad(to_hex($1 + i), 32, '0')::uuid, 1, $3, $4::smallint, 1, 4, 1, t.now, t.now - i * interval '1 ms',
       case when $4 = 2 then t.now end, case when $4 = 2 and i % 10 = 0 then t.now end, case when $4 = 2 then 1 end,
       case when $4 = 2 then lpad(to_hex($5 + i % $6), 32, '0')::uuid end,
       case when i % 10 = 0 then 'job-' || ($1 + i) end, '{"some": "payload of the usual length"}',
       case when $4 = 1 and i % 200 = 0 then t.now end
from generate_series(1, $2) as i, (select clock_timestamp() - $7 * interval '1 minute' as now) as t
"""
JOBS = """
insert into mainspring.jobs (tenant_id, job_id, lane_id, shard, status, max_attempts, one_time, id_generated,
                             next_fire_at, created_at, updated_at, schedule)
select 1, $1 || '-' || i, 1 + i % 10, i % 128, 1, 4, i % 2 = 0, false, t.now + i * $3::interval, t.now, t.now, '{}'
from generate_series(1, $2) as i, (select clock_timestamp() as now) as t
"""


class Filling:
    """Fills the two tables in steps."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self._ids = 0

    async def runs(
        self, count: int, lane: int, *, running: bool = False, first_worker: int = 100, workers: int = 200, age: int = 1
    ) -> None:
        state = 2 if running else 1
        await self._connection.execute(RUNS, self._ids, count, lane, state, first_worker, workers, age)
        self._ids += count

    async def queued(self) -> None:
        await self.runs(90_000, LANES[0])
        await self.runs(10_000, ELSEWHERE, age=60)
        for lane in LANES[1:]:
            await self.runs(200, lane)

    async def running(self, *, workers: int = 200) -> None:
        """Runs that other workers hold."""
        await self.runs(20_000, LANES[0], running=True, workers=workers)

    async def ours(self) -> None:
        """Runs that our worker holds. They have the highest ids."""
        await self.runs(500, LANES[0], running=True, first_worker=US.int, workers=1)

    async def jobs_later(self) -> None:
        await self._connection.execute(JOBS, "later", 100_000, timedelta(minutes=1))

    async def jobs_due(self) -> None:
        await self._connection.execute(JOBS, "due", 2 * BATCH, timedelta(milliseconds=-1))

    async def analyze(self) -> None:
        await self._connection.execute("analyze mainspring.runs, mainspring.jobs")


async def empty(fill: Filling) -> None:
    await fill.analyze()
    await fill.queued()
    await fill.running()
    await fill.ours()
    await fill.jobs_later()
    await fill.jobs_due()


async def all_queued(fill: Filling) -> None:
    await fill.queued()
    await fill.jobs_later()
    await fill.analyze()
    await fill.running()
    await fill.ours()
    await fill.jobs_due()


async def all_running(fill: Filling) -> None:
    """One worker holds all runs, so the worker is not selective in the statistics."""
    await fill.running(workers=1)
    await fill.jobs_due()
    await fill.analyze()
    await fill.queued()
    await fill.ours()
    await fill.jobs_later()


async def mixed(fill: Filling) -> None:
    await empty(fill)
    await fill.analyze()


@dataclass(frozen=True)
class Statement:
    """One statement with its arguments, and how many rows of runs and jobs it may read."""

    file: str
    name: str
    arguments: Sequence[Any]
    most: int


async def statements(connection: asyncpg.Connection, node: UUID) -> list[Statement]:
    """The statements of the hot path, each for a batch of 100."""
    ours = [
        row["run_id"] for row in await connection.fetch("select run_id from mainspring.runs where worker_id = $1", US)
    ]
    some, fences, zeros, nothing = ours[:BATCH], [1] * BATCH, [0] * BATCH, [None] * BATCH
    held = await leases.take(connection, node, range(128), 60)
    lease = [node, list(held), list(held.values())]
    due = await connection.fetch(
        "select job_id, one_time, next_fire_at, xmin from mainspring.jobs where job_id like 'due-%'"
    )
    once, again = ([row for row in due if row["one_time"] is kind] for kind in (True, False))

    def key(rows: list[asyncpg.Record]) -> list[Any]:
        return [[1] * len(rows), [row["job_id"] for row in rows]]

    def seen(rows: list[asyncpg.Record]) -> list[Any]:
        return [*key(rows), [1] * len(rows), [row["next_fire_at"] for row in rows]]

    written = [row["xmin"] for row in once]
    moments = [row["next_fire_at"] for row in again]
    following = [moment + timedelta(hours=1) for moment in moments]
    positions = list(range(1, BATCH + 1))
    no_gaps = [[1] * BATCH, zeros]
    fired = [
        moments,
        following,
        positions,
        positions,
        *no_gaps,
        [1] * BATCH,
        uuid7_batch(BATCH),
        moments,
        [],
        [],
        [],
        [],
        moments,
        moments,
    ]
    ended = [some, fences, [11] * BATCH, nothing, nothing, nothing, [2] * BATCH, zeros, zeros, nothing]
    gated = [[1] * 10, [BATCH] * 10, [2] * 10, [BATCH] * 10, ["{1,2}"] * 10]
    merged = [LANES, BATCH, US, 2, [BEGINNING] * 10, [1] * 10]
    # One worker reports, and four others claim.
    members = [US, *(UUID(int=number) for number in range(2, 6))]
    for worker_id in members:
        await connection.execute(
            "insert into mainspring.workers (worker_id, tenant_id, name, queues, tasks, slots) "
            "values ($1, 1, 'w', '{}', '{}', 1) on conflict do nothing",
            worker_id,
        )
    grouped = [
        members, [1] * 5, [7] * 5, [False] * 5, [0, *[BATCH // 4] * 4], [0] * 5, some, fences, [1] * BATCH, zeros,
        zeros, nothing, nothing, 0, [0], [LANES[0]], [BEGINNING], [1],
    ]  # fmt: skip
    handed = [
        1, uuid7_batch(BATCH), [LANES[0]] * BATCH, [4] * BATCH, nothing, nothing, nothing, nothing, [1] * BATCH,
        [1 + number % 5 for number in range(BATCH)], members, [1] * 5, [7] * 5, [False] * 5, 0,
    ]  # fmt: skip
    return [
        Statement("runs", "claim_from_lane", [LANES[0], BATCH, US, 2, BEGINNING], 3 * BATCH),
        Statement("runs", "claim_from_lanes", merged, (len(LANES) + 3) * BATCH),
        Statement("runs", "claim_fairly", [*merged, [1, *[2] * 9], [7, *[9] * 9]], (len(LANES) + 3) * BATCH),
        Statement(
            "runs", "claim_through_gates", [*merged, [1, *[2] * 9], [7, *[9] * 9], *gated], (len(LANES) + 3) * BATCH
        ),
        Statement("gates", "look_before_gates", [US, LANES, [BEGINNING] * 10], 2 * len(ours) + len(LANES)),
        Statement("gates", "unstarted_of", [US, LANES], 2 * len(ours)),
        Statement("gates", "count_waiting", [LANES, BATCH], 2 * BATCH),
        Statement("runs", "ready_lanes", [LANES, [BEGINNING] * 10], len(LANES)),
        Statement("runs", "report_successes", [some, fences, zeros, zeros, nothing, US, nothing], 2 * BATCH),
        Statement("exchange_groups", "exchange_together", grouped, 7 * BATCH),
        Statement("hand_off", "hand_off_runs", [*handed, LANES, [BEGINNING] * 10, None], BATCH + len(LANES)),
        Statement("runs", "lock_reported", [some, fences, US], 2 * BATCH),
        Statement("runs", "free_to_report", [some], 4 * BATCH),
        Statement("runs", "requeue", [some, fences, zeros, zeros, nothing, zeros, zeros, nothing, None], 2 * BATCH),
        Statement("runs", "end_runs", ended, 2 * BATCH),
        Statement("workers", "note_starts", [US, some, fences, zeros], 3 * BATCH),
        Statement("workers", "assume_started", [US, some], 2 * BATCH),
        Statement("workers", "forget_assumed_starts", [US], 3 * len(ours)),
        Statement("runs", "redeliver", [US, 2, ours[BATCH:], BATCH], 2 * len(ours)),
        Statement("runs", "runs_held_by", [US, BATCH, False], 3 * BATCH),
        Statement("runs", "runs_held_by", [US, BATCH, True], 3 * BATCH),
        Statement("workers", "held_number", [US], 2 * len(ours)),
        Statement("runs", "to_stop", [[US]], 2 * len(ours)),
        Statement("runs", "overdue", [BATCH], 3 * BATCH),
        Statement("logs", "standings", [[1] * BATCH, some], 2 * BATCH),
        Statement("fire", "due_scan", [list(range(128)), 2.5, 2000], 2 * len(due)),
        Statement("fire", "due_scan_of_lanes", [list(range(128)), 2.5, 200, LANES[1:]], 2 * len(due)),
        Statement("fire", "fire_one_time", [*lease, *seen(once), uuid7_batch(BATCH), written], 4 * BATCH),
        Statement("fire", "lock_due", [*lease, *key(again)], 2 * BATCH),
        Statement("fire", "await_due", [*lease, *key(again), LATE, "500ms"], 2 * BATCH),
        Statement("fire", "still_due", [*lease, *key(again), LATE], 2 * BATCH),
        Statement("fire", "fire_recurring", [*lease, *seen(again), *fired, "10s"], 4 * BATCH),
        Statement("fire", "fire_free", [*lease, *seen(again), *fired], 5 * BATCH),
    ]


def literal(value: Any) -> str:
    """A value for EXECUTE. PostgreSQL casts the text to the type of the parameter."""
    if value is None:
        return "null"
    return "'" + inner(value) + "'"


def inner(value: Any) -> str:
    if isinstance(value, list | range):
        return "{" + ",".join(f'"{inner(item)}"' if item is not None else "null" for item in value) + "}"
    return value.isoformat() if isinstance(value, datetime) else str(value)


async def explain(connection: asyncpg.Connection, statement: Statement) -> dict[str, Any]:
    """The executed generic plan, as on a pooled connection. The changes are rolled back."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(f"prepare {statement.name} as {load(statement.file)[statement.name]}")
        arguments = ", ".join(literal(value) for value in statement.arguments)
        text = await connection.fetchval(
            f"explain (analyze, buffers off, timing off, format json) execute {statement.name} ({arguments})"
        )
    finally:
        await transaction.rollback()
    await connection.execute(f"deallocate {statement.name}")
    plan: dict[str, Any] = msgspec.json.decode(text)[0]["Plan"]
    return plan


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


def scans(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """The nodes that read runs or jobs."""
    return [node for node in nodes(plan) if "Scan" in node["Node Type"] and node.get("Relation Name") in WATCHED]


def touched(scan: dict[str, Any]) -> float:
    rows = scan["Actual Rows"] + sum(value for name, value in scan.items() if name.startswith("Rows Removed"))
    return float(rows * scan["Actual Loops"])


def problems(statement: Statement, plan: dict[str, Any]) -> list[str]:
    found = []
    reading = scans(plan)
    walked = [f"{scan['Node Type']} on {scan['Relation Name']}" for scan in reading if scan["Node Type"] == "Seq Scan"]
    if walked:
        found.append(f"{statement.name}: {', '.join(walked)}")
    total = sum(touched(scan) for scan in reading)
    if not 0 < total <= statement.most:
        by_node = [(scan["Node Type"], scan.get("Index Name"), touched(scan)) for scan in reading]
        found.append(f"{statement.name} read {total:.0f} rows, more than {statement.most}: {by_node}")
    return found


@pytest.fixture
async def hot(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection like in the hot pool."""
    opened = await asyncpg.connect(database_url, server_settings=HOT_SETTINGS)
    yield opened
    await opened.close()


@pytest.mark.slow
@pytest.mark.parametrize("statistics_of", [empty, all_queued, all_running, mixed], ids=lambda moment: moment.__name__)
async def test_few_rows_are_touched_whenever_statistics_were_taken(
    connection: asyncpg.Connection, hot: asyncpg.Connection, statistics_of: Callable[[Filling], Any]
) -> None:
    for table in WATCHED:
        await connection.execute(f"alter table mainspring.{table} set (autovacuum_enabled = off)")
    await statistics_of(Filling(connection))
    assert await connection.fetchval("select count(*) from mainspring.runs") > 120_000
    found: list[str] = []
    for statement in await statements(connection, uuid7()):
        found += problems(statement, await explain(hot, statement))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("early", [True, False], ids=["statistics of empty tables", "statistics of full tables"])
async def test_output_is_stored_and_read_by_index_whenever_statistics_were_taken(
    connection: asyncpg.Connection, database_url: str, early: bool
) -> None:
    if early:
        await connection.execute("vacuum analyze mainspring.run_logs, mainspring.log_chunks")
    await connection.execute(
        """insert into mainspring.run_logs (run_id, attempt, fence, tenant_id, worker_id, bytes)
           select gen_random_uuid(), 1, 1, 1, gen_random_uuid(), 10 from generate_series(1, 50000)"""
    )
    await Filling(connection).runs(BATCH, 1, running=True)
    await connection.execute("update mainspring.runs set worker_id = $1", await a_worker(connection))
    await connection.execute(
        """insert into mainspring.run_logs (run_id, attempt, fence, tenant_id, worker_id, bytes)
           select run_id, attempt, fence, 1, worker_id, 10 from mainspring.runs"""
    )
    await connection.execute(
        """insert into mainspring.log_chunks (run_id, first_byte, tenant_id, fence, size, data)
           select run_id, 0, 1, 1, 10, 'ten bytes.' from mainspring.run_logs"""
    )
    if not early:
        await connection.execute("vacuum analyze mainspring.run_logs, mainspring.log_chunks")
    held = await connection.fetch("select run_id, fence, worker_id from mainspring.runs")
    run_ids, fences, size = [row["run_id"] for row in held], [row["fence"] for row in held], len(held)
    pieces = [run_ids, fences, [10] * size, [4] * size, [False] * size, [False] * size, 1, held[0]["worker_id"]]
    chunks = [run_ids, fences, [10] * size, [4] * size, ["more"] * size, ["words"] * size]
    key = [run_ids[0], fences[0], 1]
    of_logs = await asyncpg.connect(database_url, server_settings=LOG_SETTINGS)
    for statement in (
        Statement("logs", "record", [*pieces, *chunks], 3 * size),
        Statement("log_chunks", "read_chunks", [*key, 0, 10, 100, BEGINNING, LATE], 4),
    ):
        plan = await explain(of_logs, statement)
        reading = [
            node for node in nodes(plan) if node.get("Relation Name", "").startswith(("log_chunks", "run_logs"))
            and "Scan" in node["Node Type"]
        ]  # fmt: skip
        assert {node["Node Type"] for node in reading} <= {"Index Scan", "Index Only Scan"}
        assert 0 < sum(touched(node) for node in reading) <= statement.most, statement.name
    await of_logs.close()


async def test_a_live_run_whose_log_is_followed_is_not_looked_for_in_the_history(
    connection: asyncpg.Connection, hot: asyncpg.Connection
) -> None:
    await Filling(connection).runs(3, 1, running=True)
    live = [row["run_id"] for row in await connection.fetch("select run_id from mainspring.runs")]
    for wanted, looked_for in ((live, 0), ([*live, uuid7()], 1)):
        plan = await explain(hot, Statement("logs", "standings", [[1] * len(wanted), wanted], len(wanted)))
        days = [node for node in nodes(plan) if "Scan" in node["Node Type"] and node.get("Alias", "").startswith("p_")]
        assert days
        assert {node["Actual Loops"] for node in days} == {looked_for}
