"""A server that is stopped (SIGSTOP) in the middle of a change holds row locks. It must not delay others for long."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from subprocess import Popen

import asyncpg
import httpx
import pytest

from mainspring.store.queries import render
from tests.processes.cluster import SLOW, Cluster, eventually, free_port

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

IN_THE_MIDDLE = """
select pid, xact_start from pg_stat_activity
where application_name = 'mainspring server reads' and state = 'idle in transaction'
"""
WAITING = """
select count(*) from pg_stat_activity where application_name = $1 and wait_event_type = 'Lock'
"""


@pytest.fixture
async def holder(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A transaction that holds what a change needs in its middle."""
    opened = await asyncpg.connect(database_url)
    await opened.execute("begin")
    yield opened
    await opened.close()


async def stop(
    connection: asyncpg.Connection, holder: asyncpg.Connection, server: Popen[bytes], waiting: str
) -> set[asyncpg.Record]:
    """Stop the server while one of its backends waits for `holder`, and let that one go on. Returns its transactions,
    with those of others at that moment."""

    async def waits() -> bool:
        return bool(await connection.fetchval(WAITING, waiting))

    await eventually(waits, SLOW, "the change is in the middle")
    server.send_signal(signal.SIGSTOP)
    await holder.execute("rollback")

    async def holds() -> list[asyncpg.Record]:
        return list(await connection.fetch(IN_THE_MIDDLE))

    return set(await eventually(holds, SLOW, "the stopped server holds locks"))


async def change(cluster: Cluster, method: str, path: str, **body: object) -> None:
    """Without an answer: the server stops meanwhile."""
    with suppress(httpx.HTTPError):
        await cluster.http.request(method, f"{cluster.url}{path}", json=body or None)


async def test_a_server_that_is_stopped_during_a_patch_does_not_stop_the_fires_of_others(
    cluster: Cluster, connection: asyncpg.Connection, holder: asyncpg.Connection
) -> None:
    first = await cluster.server()
    second = free_port()
    await cluster.server(second)
    names = ["victim", *(f"other-{number}" for number in range(10))]
    for name in names:
        await cluster.submit(job_id=name, task="nobody-runs-it", schedule={"every": "1s"}, overlap="allow")

    async def fired(count: int) -> bool:
        rows = await connection.fetch("select job_id, count(*) as count from mainspring.runs group by job_id")
        return {row["job_id"] for row in rows if row["count"] >= count} == set(names)

    await eventually(lambda: fired(1), SLOW, "all fire")
    await holder.execute(render("select pg_advisory_xact_lock({{lock_key('lanes')}})"))
    patch = asyncio.create_task(change(cluster, "PATCH", "/v1/jobs/victim", queue="elsewhere"))
    held = await stop(connection, holder, first, "mainspring lanes")
    most = await connection.fetchval("select max(count) from (select count(*) from mainspring.runs group by job_id) c")
    await eventually(lambda: fired(most + 3), SLOW, "all fire, the job that was being changed among them")
    assert held.isdisjoint(await connection.fetch(IN_THE_MIDDLE))
    assert await connection.fetchval("select count(*) from mainspring.jobs where version = 1") == len(names)
    patch.cancel()


async def test_a_server_that_is_stopped_during_a_cancel_does_not_cost_a_worker_its_runs(
    cluster: Cluster, connection: asyncpg.Connection, holder: asyncpg.Connection
) -> None:
    first = await cluster.server()
    second = free_port()
    await cluster.server(second)
    worker = await cluster.worker(servers=f"http://127.0.0.1:{second}", slots=4)
    await cluster.submit(job_id="pair", command="sleep 3", schedule="manual", overlap="allow")
    for _ in range(2):
        answer = await cluster.http.post("/v1/jobs/pair/run-now")
        assert answer.status_code in (200, 201, 202), answer.text

    async def running() -> list[asyncpg.Record]:
        rows = await connection.fetch("select run_id from mainspring.runs where state = 2 order by run_id")
        return rows if len(rows) == 2 else []

    _, later = await eventually(running, SLOW, "both run")
    await holder.execute("select from mainspring.runs where run_id = $1 for no key update", later["run_id"])
    cancel = asyncio.create_task(change(cluster, "DELETE", "/v1/jobs/pair"))
    await stop(connection, holder, first, "mainspring server reads")

    async def ended() -> list[asyncpg.Record]:
        rows = await connection.fetch("select state, attempt, fence from mainspring.run_history")
        return rows if len(rows) == 2 else []

    assert [tuple(row) for row in await eventually(ended, SLOW, "both are reported")] == [(10, 1, 1)] * 2
    assert worker.poll() is None
    cancel.cancel()
