"""All processes start at the same time on an empty database. All work, and nothing is created twice."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import asyncpg
import httpx
import pytest

from mainspring.kernel.config import SHARD_COUNT, TOKEN_FILE_NAME
from mainspring.store import tokens
from tests.processes.cluster import SLOW, START, TAKEN, Cluster, Patient, eventually, free_port, with_key

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

TASKS = """
from mainspring import Mainspring

app = Mainspring()

@app.cron("* * * * * *")
@app.task("each-second")
async def tick() -> None: ...

@app.task
async def add(a: int, b: int) -> int:
    return a + b
"""


@pytest.fixture
async def beginning(empty_url: str) -> AsyncIterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="ms-cluster-", dir="/tmp"))
    cluster = Cluster(empty_url, "", folder)
    try:
        yield cluster
    finally:
        await cluster.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
async def test_servers_schedulers_and_workers_that_start_together_share_one_cluster(
    beginning: Cluster, empty_url: str
) -> None:
    token_file = beginning.folder / TOKEN_FILE_NAME
    (beginning.folder / "tasks.py").write_text(TASKS)
    database = {"MAINSPRING_DATABASE_URL": empty_url}
    ports = [free_port() for _ in range(3)]
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    children = [
        beginning._start(["server", "--port", str(port), "--data", str(beginning.folder)], database) for port in ports
    ]
    children.append(beginning._start(["scheduler"], database))
    await eventually(_there(token_file), START, "the first server has made the token")
    children += [
        beginning._start(
            ["worker", "--server", url, "--token-file", str(token_file), "--app", "tasks:app"], {}, beginning.folder
        )
        for url in urls[:2]
    ]
    headers = {"Authorization": f"Bearer {token_file.read_text().strip()}"}
    async with httpx.AsyncClient(headers=headers, timeout=60, transport=Patient()) as http:

        async def all_ready() -> bool:
            for child in children:
                assert child.poll() is None, beginning.said(child)
            try:
                return all([(await http.get(f"{url}/readyz")).status_code == 200 for url in urls])
            except httpx.TransportError:
                return False

        await eventually(all_ready, START, "every server is ready")
        # Through all servers at once: one new lane that they share, and one new lane each.
        bodies = [{"task": "add", "payload": {"a": 1, "b": 2}, "queue": queue} for queue in ("default", "a", "b", "c")]
        posts = (http.post(f"{url}/v1/jobs", json=with_key(body)) for url in urls for body in bodies)
        answers = await asyncio.gather(*posts)
        assert all(answer.status_code in TAKEN for answer in answers), [answer.text for answer in answers]
        ours = [answer.json()["job_id"] for answer in answers if answer.request.content.find(b'"default"') > 0]

        async def all_ran() -> bool:
            views = [(await http.get(f"{urls[0]}/v1/jobs/{job_id}/status")).json() for job_id in ours]
            return all((view["latest_run"] or {}).get("status") == "SUCCESS" for view in views)

        await eventually(all_ran, SLOW, "every job has run")
        await eventually(_ticked(http, urls[1]), SLOW, "the application's schedule has fired at least twice")
    await _nothing_is_there_twice(empty_url)


async def _nothing_is_there_twice(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        admins = await connection.fetch("select token_hash from mainspring.tokens")
        assert len(admins) == 1, "one admin, who stands in the file"
        assert admins[0]["token_hash"] != tokens.hash_token(""), "nobody read the file before the token was in it"

        async def every_shard_is_owned() -> bool:
            owned = "select count(*) from mainspring.shard_leases where expires_at > clock_timestamp()"
            return bool(await connection.fetchval(owned) == SHARD_COUNT)

        await eventually(every_shard_is_owned, SLOW, "every shard has an owner")
        jobs = await connection.fetch("select job_id from mainspring.jobs")
        assert [row["job_id"] for row in jobs] == ["each-second"]
        twice = await connection.fetch(
            "select job_id, scheduled_for from (select job_id, scheduled_for from mainspring.runs union all "
            "select job_id, scheduled_for from mainspring.run_history) r where job_id = 'each-second' "
            "group by 1, 2 having count(*) > 1"
        )
        assert twice == []
    finally:
        await connection.close()


def _there(file: Path) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return file.exists()

    return look


def _ticked(http: httpx.AsyncClient, url: str) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        answer = await http.get(f"{url}/v1/jobs/each-second/runs")
        return answer.status_code == 200 and sum(run["status"] == "SUCCESS" for run in answer.json()) >= 2

    return look
