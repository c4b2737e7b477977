"""The primary is lost under submissions, and its standby is promoted: nothing is lost, refused or stored twice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import httpx
import pytest

from mainspring.store.migrate import migrate
from tests.processes.cluster import SLOW, Cluster, eventually
from tests.processes.failover_pair import FailoverPair

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CLIENTS = 16
TOKEN_FILE = "admin-token"


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
        self.slowest = 0.0
        self._tasks = [asyncio.create_task(self._submit(number)) for number in range(CLIENTS)]

    async def _submit(self, number: int) -> None:
        while not self._over:
            body = {"task": "nobody", "payload": {"client": number}}
            if number % 4 == 1:
                body["schedule"] = "0 3 1 1 *"
            elif number % 4 == 2:
                body = {"jobs": [body, {**body, "name": "second"}]}
            elif number % 4 == 3:
                body["concurrency"] = {"key": "payload.client", "limit": 1}
            began = time.monotonic()
            answer = await self._http.post("/v1/jobs:batch" if "jobs" in body else "/v1/jobs", json=body)
            self.slowest = max(self.slowest, time.monotonic() - began)
            if answer.status_code != 201:
                self.refused.append(answer.text)
                continue
            self.job_ids += answer.json()["job_ids"] if "jobs" in body else [answer.json()["job_id"]]

    async def stop(self) -> None:
        self._over = True
        await asyncio.gather(*self._tasks)
        await self._http.aclose()


async def stored(url: str) -> list[str]:
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch(
            "select run_id::text as id from mainspring.runs union all select job_id from mainspring.jobs"
        )
        return [row["id"] for row in rows]
    finally:
        await connection.close()


@pytest.mark.parametrize("frozen", [False, True], ids=["killed", "frozen"])
async def test_a_failover_under_submissions_loses_refuses_and_doubles_none(
    pair: FailoverPair, tmp_path: Path, frozen: bool
) -> None:
    await migrate(pair.url)
    cluster = Cluster(pair.url, "none", tmp_path)
    try:
        server = await cluster.server()
        submitters = Submitters(cluster.url, (tmp_path / TOKEN_FILE).read_text().strip())

        async def some_more(than: int) -> bool:
            return len(submitters.job_ids) > than

        await eventually(lambda: some_more(200), SLOW, "jobs are submitted")
        if frozen:
            pair.first.freeze(True)
        else:
            pair.first.kill()
        lost = time.monotonic()
        while time.monotonic() < lost + 3:  # nobody is the primary
            await asyncio.sleep(0.1)
        await pair.promote()
        before = len(submitters.job_ids)
        await eventually(lambda: some_more(before + 200), SLOW, "jobs are submitted to the new primary")
        await submitters.stop()
        assert submitters.refused == [], cluster.said(server)
        found = await stored(pair.second.url("mainspring"))
        assert sorted(found) == sorted(submitters.job_ids)
        assert submitters.slowest < 15
    finally:
        if frozen:
            pair.first.freeze(False)
        await cluster.close()
