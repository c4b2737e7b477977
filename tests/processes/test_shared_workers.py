"""A real `mainspring worker` with a token that belongs to no tenant, and two tenants that it serves.

Needs bubblewrap and user namespaces: such a worker does not start without the sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.processes.cluster import SLOW, START, Cluster, eventually
from tests.worker.sandboxes import needs_sandbox

pytestmark = [pytest.mark.anyio, needs_sandbox, pytest.mark.slow]

APP = "tests.processes.sample_app:app"


async def a_tenant(cluster: Cluster, name: str) -> httpx.AsyncClient:
    """A client with the token that the command line prints."""
    made = cluster.cli("tenant-add", name)
    assert made.returncode == 0, made.stderr
    headers = {"Authorization": f"Bearer {made.stdout.strip()}"}
    return httpx.AsyncClient(base_url=cluster.url, headers=headers, timeout=60)


async def submit(client: httpx.AsyncClient, **fields: Any) -> str:
    answer = await client.post("/v1/jobs", json=fields)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["job_id"])


async def ended(client: httpx.AsyncClient, job_id: str) -> dict[str, Any]:
    async def look() -> dict[str, Any]:
        run: dict[str, Any] = (await client.get(f"/v1/jobs/{job_id}/status")).json()["latest_run"]
        return run if run["end_time"] else {}

    return await eventually(look, SLOW, f"job {job_id} has ended")


@pytest.mark.slow
async def test_one_worker_runs_what_two_tenants_submit_and_each_sees_its_own(cluster: Cluster) -> None:
    await cluster.server()
    made = cluster.cli("token-add", "pool", "--role", "worker", "--all-tenants")
    assert made.returncode == 0, made.stderr
    token_file = Path(cluster.folder / "pool-token")
    token_file.write_text(made.stdout)
    unconfined = cluster.cli("worker", token_file=token_file)
    assert (unconfined.returncode, "--sandbox bubblewrap" in unconfined.stderr) == (2, True), unconfined.stderr
    worker = await cluster.worker("--token-file", str(token_file), "--sandbox", "bubblewrap", app=APP)
    listed = cluster.cli("workers")
    assert "all tenants" in listed.stdout
    a, b = await a_tenant(cluster, "a"), await a_tenant(cluster, "b")
    async with a, b:
        jobs = {
            name: [
                await submit(client, task="hello", payload={"name": name}),
                await submit(client, command=f"cat {token_file} 2>/dev/null; echo printed for {name}"),
            ]
            for name, client in (("a", a), ("b", b))
        }
        for name, client, other in (("a", a, b), ("b", b, a)):
            said, printed = [await ended(client, job_id) for job_id in jobs[name]]
            assert (said["status"], said["result"]) == ("SUCCESS", f"hello {name}")
            assert printed["status"] == "SUCCESS"

            async def log(client: httpx.AsyncClient = client, run_id: str = printed["run_id"]) -> str:
                return (await client.get(f"/v1/runs/{run_id}/logs")).text

            assert await eventually(log, SLOW, "what it printed is there") == f"printed for {name}\n"
            for job_id in jobs[name]:
                assert (await other.get(f"/v1/jobs/{job_id}")).status_code == 404
        refused = await a.post(f"/v1/workers/{said['executor_id']}:drain")
        assert refused.status_code == 403
    assert cluster.cli("drain", said["executor_id"]).returncode == 0

    async def left() -> bool:
        return worker.poll() is not None

    await eventually(left, START, "the drained worker has left")
    assert worker.returncode == 0, cluster.said(worker)
