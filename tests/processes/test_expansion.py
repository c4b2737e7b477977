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
from tests.sizes import sizes

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]

PATIENCE = 300.0  # ends a test that hangs
PER_MEMBER = 0.05
KILLS = 2


def counted(members: int) -> dict[str, Any]:
    """A workflow that maps a step and counts its members."""
    return {
        "workflow_id": "counted",
        "steps": [
            {
                "name": "each",
                "task": "hello",
                "map": {"range": members, "max_parallel": max(members // 10, 100)},
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


@pytest.mark.slow
@pytest.mark.parametrize("members", sizes("MAINSPRING_MEMBERS", 1_200, 3_000))
async def test_what_is_killed_amid_an_expansion_loses_and_repeats_no_member(
    cluster: Cluster, connection: asyncpg.Connection, members: int
) -> None:
    """Each server is killed in a transaction that has created members, before the cursor has moved. A worker is killed
    with it."""
    server, worker = await cluster.server(), await a_worker(cluster)
    assert (await cluster.http.post("/v1/workflows", json=counted(members))).status_code == 201
    run_id = (await cluster.http.post("/v1/workflows/counted:runNow", json={})).json()["run_id"]
    for least in thresholds(members):
        await kill_amid(connection, server, worker, least)
        server, worker = await cluster.server(), await a_worker(cluster)
    async with AsyncClient(cluster.url, TOKEN) as client:
        assert (
            await client.workflow_run_handle(run_id).result("join", timeout=PATIENCE + members * PER_MEMBER)
            == 2 * members
        )
    ended = await connection.fetch(
        "select state, count(*), count(distinct run_id) as runs, count(distinct trigger) as numbers"
        " from mainspring.run_history where job_id is null and name = 'each' group by state"
    )
    assert [tuple(row) for row in ended] == [(10, members, members, members)]
    assert await connection.fetchval("select count(*) from mainspring.join_marks") == 0


def thresholds(members: int) -> Iterator[int]:
    """How many members are created when the next server is killed."""
    return (1 + members * number // (KILLS + 1) for number in range(KILLS))


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
