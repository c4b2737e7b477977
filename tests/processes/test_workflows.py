"""FEATURES 4.1, 4.7: a workflow of five steps in YAML is run by real processes, fails in the middle, is mended and
rerun from there. And the workflow of the application, which its worker has created."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from mainspring import AsyncClient
from tests.conftest import TOKEN
from tests.processes.cluster import START, Cluster, eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
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
