"""Faults while submissions are handed to workers that wait: each acknowledged job ends, and runs once."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import asyncpg
import httpx
import pytest

from mainspring.domain.transitions import StoredState
from mainspring.store.migrate import migrate
from tests.processes.cluster import SLOW, Cluster, eventually, worker_process
from tests.processes.failover_pair import FailoverPair

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CLIENTS = 8
APP = """
from mainspring import Context, Mainspring
app = Mainspring()

@app.task
async def note(ctx: Context) -> None:
    with open({place!r}, "a") as file:
        file.write(f"{{ctx.job_id}} {{ctx.attempt}}\\n")
"""


@pytest.fixture
async def pair() -> AsyncIterator[FailoverPair]:
    async with FailoverPair() as made:
        yield made


class Submitters:
    """Clients that submit one job after another, without a key and without a second try."""

    def __init__(self, url: str, token: str) -> None:
        self._http = httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60)
        self._over = False
        self.job_ids: list[str] = []
        self.refused: list[str] = []
        self._tasks = [asyncio.create_task(self._submit(number)) for number in range(CLIENTS)]

    async def _submit(self, number: int) -> None:
        job = {"task": "note", "payload": {}} if number % 4 else {"task": "note", "name": "one by one"}
        while not self._over:
            try:
                if number % 4 == 1:
                    answer = await self._http.post("/v1/jobs:batch", json=[job, job])
                else:
                    answer = await self._http.post("/v1/jobs", json=job)
            except httpx.TransportError as error:  # the server was killed: not acknowledged
                self.refused.append(repr(error))
                await asyncio.sleep(0.2)
                continue
            if answer.status_code != 201:
                self.refused.append(answer.text)
                continue
            self.job_ids += answer.json().get("job_ids") or [answer.json()["job_id"]]
            await asyncio.sleep(0.05)  # so that workers wait for runs

    async def stop(self) -> None:
        self._over = True
        await asyncio.gather(*self._tasks)
        await self._http.aclose()


@pytest.mark.parametrize("fault", ["failover", "backends", "server", "worker"])
async def test_each_acknowledged_job_ends_and_runs_once(pair: FailoverPair, tmp_path: Path, fault: str) -> None:
    await migrate(pair.url)
    place = tmp_path / "runs.txt"
    (tmp_path / "noting.py").write_text(APP.format(place=str(place)))
    cluster = Cluster(pair.url, "none", tmp_path)
    try:
        server = await cluster.server()
        token = (tmp_path / "admin-token").read_text().strip()
        (tmp_path / "token").write_text(token)
        cluster.http.headers["Authorization"] = f"Bearer {token}"
        workers = [await cluster.worker(app="noting:app", folder=tmp_path) for _ in range(2)]
        submitters = Submitters(cluster.url, token)

        async def some_more(than: int) -> bool:
            return len(submitters.job_ids) > than

        await eventually(lambda: some_more(100), SLOW, "jobs are submitted")
        handed = await handed_off(cluster)
        primary = pair.first
        for _ in range(1 if fault == "failover" else 3):
            if fault == "failover":
                pair.first.kill()
                lost = time.monotonic()
                while time.monotonic() < lost + 2:
                    await asyncio.sleep(0.1)
                await pair.promote()
                primary = pair.second
            elif fault == "backends":
                await end_backends(primary.url())
            elif fault == "server":
                server.send_signal(signal.SIGKILL)
                server.wait()
                server = await cluster.server()
            else:
                killed = workers.pop(0)
                os.kill(worker_process(killed.pid), signal.SIGKILL)
                workers.append(await cluster.worker(app="noting:app", folder=tmp_path))
            before = len(submitters.job_ids)
            await eventually(partial(some_more, before + 60), SLOW, "jobs are submitted after the fault")
        await submitters.stop()
        url = primary.url("mainspring")
        await eventually(lambda: nothing_left(url), SLOW, "all runs have ended")
        ended = await ends(url)
        assert set(submitters.job_ids) <= set(ended), "an acknowledged job is lost"
        assert len(submitters.job_ids) == len(set(submitters.job_ids))
        assert set(ended.values()) == {int(StoredState.SUCCESS)}
        if fault != "server":
            assert submitters.refused == [], cluster.said(server)
            assert set(ended) == set(submitters.job_ids), "a job is stored that no answer names"
        ran = Counter(line for line in place.read_text().splitlines())
        assert max(ran.values()) == 1, "an attempt ran twice"
        assert {line.split()[0] for line in ran} == set(ended)
        assert handed > 0, "nothing was handed off"
    finally:
        await cluster.close()


async def handed_off(cluster: Cluster) -> float:
    lines = (await cluster.http.get("/metrics")).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if "handed_off" in line and not line.startswith("#"))


async def end_backends(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'mainspring server%'"
    )
    await connection.close()


async def nothing_left(url: str) -> bool:
    connection = await asyncpg.connect(url)
    try:
        return not await connection.fetchval("select count(*) from mainspring.runs")
    finally:
        await connection.close()


async def ends(url: str) -> dict[str, int]:
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch("select run_id::text, state from mainspring.run_history")
        assert len(rows) == len({row[0] for row in rows})
        return {row[0]: row[1] for row in rows}
    finally:
        await connection.close()
