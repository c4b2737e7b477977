"""S9: servers and workers are killed while the members of a mapped step are created and run. The join still counts each
of them once. `MAINSPRING_MEMBERS=1000000` for more."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from mainspring import AsyncClient
from tests.conftest import TOKEN
from tests.processes.cluster import SLOW, Cluster, eventually, worker_process

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).resolve().parents[2]

MEMBERS = int(os.environ.get("MAINSPRING_MEMBERS") or 3_000)
PATIENCE = 120.0 + MEMBERS / 50  # on a machine that has much else to do
KILLS = 2
COUNTED: dict[str, Any] = {
    "workflow_id": "counted",
    "steps": [
        {
            "name": "each",
            "task": "hello",
            "map": {"range": MEMBERS, "max_parallel": max(MEMBERS // 10, 100)},
            "payload": {"name": {"$literal": "you"}},
        },
        {
            "name": "join",
            "task": "add",
            "depends_on": ["each"],
            "payload": {"a": {"$from": "each", "path": "succeeded"}, "b": {"$from": "each", "path": "total"}},
        },
    ],
}


async def test_what_is_killed_amid_an_expansion_loses_and_repeats_no_member(
    cluster: Cluster, connection: asyncpg.Connection
) -> None:
    """Each server is killed in a transaction that has created members, before the cursor has moved. A worker is killed
    with it."""
    server, worker = await cluster.server(), await a_worker(cluster)
    assert (await cluster.http.post("/v1/workflows", json=COUNTED)).status_code == 201
    run_id = (await cluster.http.post("/v1/workflows/counted:runNow", json={})).json()["run_id"]
    for least in thresholds():
        await kill_amid(connection, server, worker, least)
        server, worker = await cluster.server(), await a_worker(cluster)
    async with AsyncClient(cluster.url, TOKEN) as client:
        assert await client.workflow_run_handle(run_id).result("join", timeout=PATIENCE) == 2 * MEMBERS
    ended = await connection.fetch(
        "select state, count(*), count(distinct run_id) as runs, count(distinct trigger) as numbers"
        " from mainspring.run_history where job_id is null and name = 'each' group by state"
    )
    assert [tuple(row) for row in ended] == [(10, MEMBERS, MEMBERS, MEMBERS)]
    assert await connection.fetchval("select count(*) from mainspring.join_marks") == 0


def thresholds() -> Iterator[int]:
    """How many members are created when the next server is killed."""
    return (1 + MEMBERS * number // (KILLS + 1) for number in range(KILLS))


async def a_worker(cluster: Cluster) -> subprocess.Popen[bytes]:
    return await cluster.worker(app="tests.processes.sample_app:app", folder=ROOT, slots=100)


async def kill_amid(
    connection: asyncpg.Connection, server: subprocess.Popen[bytes], worker: subprocess.Popen[bytes], least: int
) -> None:
    async def expanded() -> bool:
        asked = "select exists (select from mainspring.fanouts where expanded >= $1)"
        return bool(await connection.fetchval(asked, least))

    async def stuck() -> bool:
        asked = "select from pg_locks where relation = 'mainspring.fanouts'::regclass and not granted"
        return bool(await connection.fetchval(f"select exists ({asked})"))

    await eventually(expanded, PATIENCE, f"{least} members are created")
    async with connection.transaction():
        await connection.execute("lock table mainspring.fanouts in share mode")
        await eventually(stuck, SLOW, "further members are created, and the cursor is about to move")
        with suppress(IndexError, FileNotFoundError, ProcessLookupError):  # it ended before
            os.kill(worker_process(worker.pid), signal.SIGKILL)
        server.kill()
        server.wait()
