"""Late and many schedules: no flood of runs, no silent misses, no stop, and costs that depend only on due jobs."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from datetime import timedelta

import asyncpg
import httpx
import pytest

from mainspring.domain.job import Overlap
from mainspring.domain.transitions import StoredJobStatus
from mainspring.kernel.clock import SystemClock
from mainspring.kernel.config import Timing
from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.roles.assembly import Assembly, assemble
from mainspring.store import missed_fires
from tests.eventually import PATIENCE
from tests.operations.firing import fire_due
from tests.scheduler.a_node import TIMING, Node
from tests.scheduler.test_firer import POISON, many_due
from tests.store.rows import a_job, every, job_row, live, now_of
from tests.store.test_plans import Statement, explain, scans, touched

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)


async def test_a_weekend_of_downtime_does_not_end_in_a_flood(
    connection: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    """Twenty jobs that fire every minute and may overlap, with default settings: one run and one missed range each."""
    first = node.now - timedelta(days=2) - MINUTE / 2
    names = [f"job-{number}" for number in range(20)]
    for name in names:
        await a_job(connection, lane_id, name, every(60, first), first, overlap=Overlap.ALLOW)
    assert await node.turn() == 20
    assert {row["scheduled_for"] for row in await live(connection)} == {node.now - MINUTE / 2}
    for name in names:
        [missed] = await missed_fires.of_job(connection, DEFAULT_TENANT, name, 10)
        assert (missed.count, missed.reason) == (2 * 24 * 60, "coalesced into a later fire")


async def test_a_fire_that_comes_late_is_never_dropped_in_silence(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    """A fire that is an hour late is run. If the job forbids that, it is recorded as missed."""
    an_hour_ago = (await now_of(connection) - timedelta(hours=1)).isoformat()
    job = {"task": "noop", "schedule": {"every": "1d", "anchor": an_hour_ago}}
    for named in ({"job_id": "default"}, {"job_id": "never-late", "misfire": {"policy": "skip"}}):
        assert (await api.post("/v1/jobs", json=job | named)).status_code == 201
    await connection.execute("update mainspring.jobs set next_fire_at = next_fire_at - interval '1 day'")
    assert await fire_due(assembly, connection) == 1
    assert len((await api.get("/v1/jobs/default/runs")).json()) == 1
    assert (await api.get("/v1/jobs/default/missed")).json() == []
    assert (await api.get("/v1/jobs/never-late/runs")).json() == []
    [missed] = (await api.get("/v1/jobs/never-late/missed")).json()
    assert (missed["count"], missed["reason"]) == (1, "late: misfire policy skip")


async def test_a_server_that_is_alive_and_fires_nothing_is_not_ready(
    connection: asyncpg.Connection, database_url: str, lane_id: int
) -> None:
    server = await assemble(database_url, SystemClock(), timing=Timing(lease_ttl=600.0))

    async def says(status: str) -> dict[str, str]:
        """The readiness, once PostgreSQL has answered in time, which can take long on a busy machine."""
        async with asyncio.timeout(PATIENCE):
            while (found := await server.services.readiness.check()).checks["database"] != "ok":
                pass
        assert found.status == status, found
        return found.checks

    try:
        assert server.node is not None
        await server.node.leaser.run_once(connection)
        assert await says("ready")
        late = await now_of(connection) - MINUTE
        await a_job(connection, lane_id, "late", every(86_400, late), late)
        await connection.execute("update mainspring.jobs set created_at = created_at - interval '1 day'")
        assert (await says("not ready"))["due"].endswith("s late")
        assert await fire_due(server, connection) == 1
        assert await says("ready")
    finally:
        await server.close()


async def test_a_job_that_missed_far_more_than_a_hundred_fires_still_fires(
    connection: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    first = node.now - timedelta(seconds=1000)
    await a_job(connection, lane_id, "ticker", every(1, first), first, overlap=Overlap.ALLOW)
    assert await node.turn() >= 1
    assert (await job_row(connection, "ticker"))["status"] == StoredJobStatus.SCHEDULED
    node.clock.advance(1.0)
    assert await node.turn() == 1
    assert (await live(connection))[-1]["scheduled_for"] == node.now + timedelta(seconds=1)


async def test_jobs_that_cannot_be_read_do_not_stop_the_loop(
    connection: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    """One job for each way to break a job. Each is due before the valid one in every round."""
    for number, schedule in enumerate(POISON.values()):
        await a_job(connection, lane_id, f"bad-{number}", every(1, node.now), node.now)
        await connection.execute(
            "update mainspring.jobs set schedule = $1 where job_id = $2", schedule, f"bad-{number}"
        )
    await a_job(connection, lane_id, "good", every(1, node.now), node.now, overlap=Overlap.ALLOW)
    for _ in range(3):
        assert await node.turn() == 1
        node.clock.advance(1.0)
    assert [row["job_id"] for row in await live(connection)] == ["good"] * 3


async def later(connection: asyncpg.Connection, node: Node, lane_id: int, count: int) -> None:
    """Create schedules that fire tomorrow."""
    await connection.execute(
        """insert into mainspring.jobs (tenant_id, job_id, lane_id, shard, status, overlap, max_attempts, one_time,
                                        id_generated, next_fire_at, created_at, updated_at, schedule)
           select 1, 'later-' || i, $1, i % 128, 1, 0, 4, false, false, $2, $2, $2, '{}'
           from generate_series(1, $3) as i""",
        lane_id,
        node.now + timedelta(days=1),
        count,
    )


async def test_one_edit_among_many_schedules_reloads_that_one_alone(
    connection: asyncpg.Connection, hot: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    """The cost of a scan depends on the due jobs only. Of 20,000 schedules it reads the one that was changed."""
    await later(connection, node, lane_id, 20_000)
    assert await node.loader.run_once() == 0
    await connection.execute(
        "update mainspring.jobs set next_fire_at = $1, version = version + 1 where job_id = 'later-77'", node.now
    )
    assert await node.loader.run_once() == 1
    assert len(node.wheel) == 1
    plan = await explain(hot, Statement("fire", "due_scan", [list(range(128)), TIMING.look_ahead, 2000], 1))
    assert sum(touched(scan) for scan in scans(plan)) < 2  # PostgreSQL rounds the mean of 128 looks


@pytest.mark.slow
async def test_a_schedulers_memory_does_not_creep(connection: asyncpg.Connection, node: Node, lane_id: int) -> None:
    """Fired jobs are removed from memory: rounds of 300 new jobs leave nothing behind."""

    async def a_round(number: int) -> int:
        await many_due(connection, node, lane_id, 300)
        await connection.execute("update mainspring.jobs set job_id = job_id || '-' || $1::text", str(number))
        assert await node.turn() == 300
        node.ready.clear()
        await connection.execute("truncate mainspring.runs")
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        settled = [await a_round(number) for number in range(3)][-1]
        grown = [await a_round(number) for number in range(3, 8)][-1] - settled
    finally:
        tracemalloc.stop()
    assert grown < 1500 * 30, f"{grown} bytes for 1,500 jobs: something is kept of each"
