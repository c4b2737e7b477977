"""The recipes for FastAPI and Django, run with a site, a worker and a server."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tests.processes.cluster import SLOW, START, Cluster, eventually, free_port

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@asynccontextmanager
async def site(cluster: Cluster, *command: str, path: str) -> AsyncIterator[httpx.AsyncClient]:
    """Run a site as a separate process. `{port}` in the command is replaced by its port."""
    port = free_port()
    environment = {"MAINSPRING_URL": cluster.url, "MAINSPRING_TOKEN_FILE": str(cluster.folder / "token")}
    with (cluster.folder / "site.log").open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", *(word.format(port=port) for word in command)],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            await eventually(lambda: _answers(client, path), START, "the site answers")
            yield client
        child.terminate()  # not SIGINT, which is ignored if the tests run in the background
        await asyncio.to_thread(child.wait, 60)
    finally:
        child.kill()
        child.wait()


async def _answers(client: httpx.AsyncClient, path: str) -> bool:
    try:
        return (await client.get(path)).status_code in (200, 404)
    except httpx.TransportError:
        return False


async def test_a_fastapi_endpoint_hands_its_slow_work_to_a_worker(cluster: Cluster) -> None:
    await cluster.server()
    await cluster.worker(app="examples.fastapi_app:tasks")
    command = ["uvicorn", "examples.fastapi_app:web", "--host", "127.0.0.1", "--port", "{port}"]
    async with site(cluster, *command, path="/openapi.json") as client:
        order = {"order": 7, "address": "ada@example.com"}
        placed = await client.post("/orders", json=order)
        assert placed.status_code == 202, placed.text
        again = await client.post("/orders", json=order)
        assert again.json() == placed.json()  # the same order gives the same job
        done = await _receipt(client, placed.json()["status"])
        assert (done["status"], done["attempt"]) == ("SUCCESS", 1)
        assert (done["result"]["order"], done["result"]["sent_to"]) == (7, "ada@example.com")
        assert done["result"]["key"].startswith(placed.json()["job_id"])
        assert (await client.get("/receipts/nobody")).status_code == 404


async def _receipt(client: httpx.AsyncClient, path: str) -> dict[str, Any]:
    async def look() -> dict[str, Any]:
        found = (await client.get(path)).json()
        return found if found["status"] == "SUCCESS" else {}

    return await eventually(look, SLOW, "the receipt is sent")


async def test_a_django_view_submits_after_its_commit_and_only_then(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_DATABASE", str(cluster.folder / "shop.sqlite3"))
    subprocess.run(
        [sys.executable, "-m", "examples.django_site", "migrate", "--run-syncdb", "-v", "0"], check=True, timeout=START
    )
    await cluster.server()
    await cluster.worker(app="examples.django_site.tasks:app")
    command = ["examples.django_site", "runserver", "--noreload", "127.0.0.1:{port}"]
    async with site(cluster, *command, path="/orders/0") as client:
        placed = await client.post("/orders", data={"account": "ada", "cents": "1000"})
        assert placed.status_code == 202, placed.text
        order = placed.json()["order"]
        run = await cluster.ended(f"charge-{order}")
        assert (run["status"], run["result"]) == ("SUCCESS", 1000)
        assert (await client.get(f"/orders/{order}")).json()["charged"] == 1000

        refused = await client.post("/orders", data={"account": "ada", "cents": "200000"})
        assert refused.status_code == 422
        following = await client.post("/orders", data={"account": "ada", "cents": "5"})
        assert (await cluster.ended(f"charge-{following.json()['order']}"))["result"] == 5
        jobs = [run["job_id"] for run in (await cluster.http.get("/v1/runs")).json()["runs"]]
        assert len(jobs) == 2, "the order that was rolled back has no job"
