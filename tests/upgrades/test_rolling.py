"""A cluster of the baseline becomes one of this version while jobs come and fire: server by server, worker by worker.

Nothing that was acknowledged is lost, no fire is lost or happens twice, and there is no second in which no server takes
a submission.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID, uuid4

import asyncpg
import httpx
import pytest

from mainspring.bench.arena import BENCH_TASKS
from mainspring.bench.cron_stream import CronStream
from mainspring.domain.transitions import StoredState
from mainspring.store.migrate import Stage, known_migrations
from tests.conftest import TOKEN
from tests.processes.cluster import SLOW, TAKEN, Cluster, eventually, free_port
from tests.upgrades.trees import baselines, python_path, tree_of

pytestmark = [pytest.mark.anyio, pytest.mark.long]

PER_SECOND = 10.0
BETWEEN = 3.0  # seconds of load between two steps
REFUSED = 1.0  # the longest time in which every server may refuse
END = 300.0  # on a busy machine


class Load:
    """Submissions with keys, each sent to one server after another until one takes it, as behind a load balancer."""

    def __init__(self, urls: list[str]) -> None:
        self._urls = urls
        self._http = httpx.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30)
        self._sending: set[asyncio.Task[None]] = set()
        self.acknowledged: dict[str, float] = {}  # job id: seconds between its first and its last refusal

    @asynccontextmanager
    async def sent(self) -> AsyncIterator[None]:
        steady = asyncio.create_task(self._send())
        try:
            yield
        finally:
            steady.cancel()
            await asyncio.wait([steady])
            await asyncio.gather(*self._sending)
            await self._http.aclose()

    async def _send(self) -> None:
        for number in itertools.count():
            task = asyncio.create_task(self._submit(number))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
            await asyncio.sleep(1 / PER_SECOND)

    async def _submit(self, number: int) -> None:
        body = {"task": "bench.noop", "idempotency_key": uuid4().hex}
        refusals: list[float] = []
        for turn in itertools.count(number):
            try:
                answer = await self._http.post(f"{self._urls[turn % len(self._urls)]}/v1/jobs", json=body)
            except httpx.TransportError:
                refusals.append(time.monotonic())
            else:
                if answer.status_code in TAKEN:
                    self.acknowledged[answer.json()["job_id"]] = refusals[-1] - refusals[0] if refusals else 0.0
                    return
                assert answer.status_code in (429, 503), answer.text
                refusals.append(time.monotonic())
            await asyncio.sleep(0.02)


@pytest.fixture(params=sorted(baselines()))
def old(request: pytest.FixtureRequest) -> Iterator[str]:
    """The PYTHONPATH of an earlier version."""
    folder = Path(tempfile.mkdtemp(prefix="ms-tree-", dir="/tmp"))
    yield python_path(tree_of(baselines()[request.param], folder))
    shutil.rmtree(folder)


async def replaced(child: subprocess.Popen[bytes]) -> None:
    """Stop a process as a service manager does."""
    child.send_signal(signal.SIGTERM)

    async def ended() -> bool:
        return child.poll() is not None

    await eventually(ended, SLOW, "the process has ended")
    assert child.returncode == 0


async def test_a_cluster_is_upgraded_process_by_process_under_load(old: str, database_url: str) -> None:
    folder = Path(tempfile.mkdtemp(prefix="ms-cluster-", dir="/tmp"))
    cluster = Cluster(database_url, TOKEN, folder)
    connection = await asyncpg.connect(database_url)
    try:
        first, second = cluster.port, free_port()
        urls = [f"http://127.0.0.1:{port}" for port in (first, second)]
        servers = [await cluster.server(port, tree=old) for port in (first, second)]
        workers = [await cluster.worker(app=BENCH_TASKS, servers=",".join(urls), tree=old) for _ in range(2)]
        crons = CronStream(urls[1], {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}, jobs=8)
        await crons.start()
        load = Load(urls)
        async with load.sent():
            for server, port in zip(servers, (first, second), strict=True):
                await asyncio.sleep(BETWEEN)
                await replaced(server)
                await cluster.server(port)
            for worker in workers:
                await asyncio.sleep(BETWEEN)
                await cluster.worker(app=BENCH_TASKS, servers=",".join(urls))
                await replaced(worker)
            await asyncio.sleep(BETWEEN)
        applied = {row["version"] for row in await connection.fetch("select version from mainspring.schema_migrations")}
        assert {migration.version for migration in known_migrations() if migration.stage is Stage.PRE} <= applied
        await crons.pause()

        async def nothing_runs() -> bool:
            return not await connection.fetchval("select exists (select from mainspring.runs)")

        await eventually(nothing_runs, END, "all runs have ended")
        assert await crons.faults(connection) == (0, 0)
        assert crons.fired > 50
        ids = [UUID(job_id) for job_id in load.acknowledged]
        ended = await connection.fetch("select run_id, state from mainspring.run_history where run_id = any ($1)", ids)
        assert len(ids) > 50
        assert sorted(row["run_id"] for row in ended) == sorted(ids)  # each once
        assert {row["state"] for row in ended} == {int(StoredState.SUCCESS)}
        assert max(load.acknowledged.values()) < REFUSED
    finally:
        await connection.close()
        await cluster.close()
        shutil.rmtree(folder, ignore_errors=True)
