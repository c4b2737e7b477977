"""FEATURES 4.1, 4.7: a workflow of five steps in YAML is run by real processes, fails in the middle, is mended and
rerun from there. And the workflow of the application, which its worker has created. S9: a server is killed while it
creates the members of a mapped step."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from mainspring import AsyncClient
from tests.conftest import TOKEN
from tests.processes.cluster import SLOW, START, Cluster, eventually

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).resolve().parents[2]


async def test_a_workflow_in_yaml_fails_is_mended_and_rerun(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.server()
    await cluster.worker(app="examples.nightly:app", folder=ROOT)
    file = tmp_path / "nightly.yaml"
    text = (ROOT / "examples" / "nightly.yaml").read_text()
    file.write_text(text.replace("path: results", "path: reslts"))

    def steer() -> None:
        applied = cluster.cli("workflow", "apply", str(file))
        assert applied.stdout == "workflow nightly-yaml created\n", applied
        failed = cluster.cli("workflow", "run", "nightly-yaml", "region=us", "--watch", "--json")
        view = json.loads(failed.stdout)
        assert (failed.returncode, view["status"], view["reason"]) == (1, "FAILED", "step report failed")
        assert {step["name"]: step["status"] for step in view["steps"]} == {
            "extract": "SUCCESS", "sum-up": "SUCCESS", "check": "SUCCESS", "report": "FAILED", "tidy": "SUCCESS",
        }  # fmt: skip

        file.write_text(text)
        assert "changed, version 2: steps" in cluster.cli("workflow", "apply", str(file)).stdout
        mended = cluster.cli("workflow", "rerun", view["run_id"], "--definition", "current", "--watch")
        assert mended.returncode == 0 and "5 of 5 steps: 5 SUCCESS" in mended.stdout, mended
        [report] = [line for line in mended.stdout.splitlines() if "report" in line]
        assert "SUCCESS" in report and "rerun 1" in report

    await asyncio.to_thread(steer)
    async with AsyncClient(cluster.url, TOKEN) as client:
        [run] = (await client.workflow_runs("nightly-yaml")).runs
        assert await client.workflow_run_handle(run.run_id).result("report") == "us: 6021 cents on 3 days"

        async def declared() -> bool:
            return any(one.workflow_id == "nightly" for one in (await client.workflows()).workflows)

        await eventually(declared, START, "the worker has created the workflow of its application")
        handle = await client.run_workflow("nightly", {"days": 2})
        assert await handle.result("report", timeout=60) == "eu: 3000 cents on 2 days"


MEMBERS = 2500
COUNTED: dict[str, Any] = {
    "workflow_id": "counted",
    "steps": [
        {
            "name": "each",
            "task": "hello",
            "map": {"range": MEMBERS, "max_parallel": 600},
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


async def test_a_server_killed_amid_an_expansion_loses_and_repeats_no_member(
    cluster: Cluster, connection: asyncpg.Connection
) -> None:
    """It is killed in a transaction that has created members, before the cursor has moved."""
    doomed = await cluster.server()
    await cluster.worker(app="tests.processes.sample_app:app", folder=ROOT, slots=50)
    assert (await cluster.http.post("/v1/workflows", json=COUNTED)).status_code == 201
    answer = await cluster.http.post("/v1/workflows/counted:runNow", json={})
    run_id = answer.json()["run_id"]

    async def expanding() -> int:
        expanded: int | None = await connection.fetchval("select expanded from mainspring.fanouts where expanded > 0")
        return expanded or 0

    async def stuck() -> bool:
        asked = "select from pg_locks where relation = 'mainspring.fanouts'::regclass and not granted"
        return bool(await connection.fetchval(f"select exists ({asked})"))

    await eventually(expanding, SLOW, "the first members are created")
    async with connection.transaction():
        await connection.execute("lock table mainspring.fanouts in share mode")
        await eventually(stuck, SLOW, "further members are created, and the cursor is about to move")
        assert 0 < await expanding() < MEMBERS
        os.kill(doomed.pid, signal.SIGKILL)
        doomed.wait()
    await cluster.server()
    async with AsyncClient(cluster.url, TOKEN) as client:
        assert await client.workflow_run_handle(run_id).result("join", timeout=SLOW) == 2 * MEMBERS
    ended = await connection.fetch(
        "select state, count(*) from mainspring.run_history where job_id is null and name = 'each' group by state"
    )
    assert [tuple(row) for row in ended] == [(10, MEMBERS)]
