"""Jobs without limits on a real worker: one that multiplies and one that takes memory are ended, by the worker's own
caps, and the worker and its other runs go on. Both are bounded, and end themselves after 20 s."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.cluster import SLOW, Cluster, eventually
from tests.processes.test_shared_workers import a_tenant, ended, submit
from tests.worker.sandboxes import PYTHON, needs_sandbox

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

BOMB = """
import os, signal, time
end, born = time.monotonic() + 20, 0
while time.monotonic() < end:
    try:
        if born < 3000 and os.fork() == 0:
            signal.alarm(20)
            signal.pause()
        born += 1
    except OSError:
        pass
"""
HOG = "import time; kept = [b'x' * (10 << 20) for _ in range(100)]; time.sleep(20)"
LIMITED = "limit of 1024 processes exceeded, the most that this worker allows (--run-max-processes)"


@pytest.mark.slow
@needs_sandbox
async def test_on_a_shared_pool_a_job_of_one_tenant_that_multiplies_costs_another_tenant_nothing(
    cluster: Cluster,
) -> None:
    await cluster.server()
    made = cluster.cli("token-add", "pool", "--role", "worker", "--all-tenants")
    assert made.returncode == 0, made.stderr
    token_file = Path(cluster.folder / "pool-token")
    token_file.write_text(made.stdout)
    options = ("--token-file", str(token_file), "--sandbox", "bubblewrap", "--max-memory", "700MiB")
    worker = await cluster.worker(*options)
    hostile, innocent = await a_tenant(cluster, "hostile"), await a_tenant(cluster, "innocent")
    async with hostile, innocent:
        waits = await submit(innocent, command="for i in $(seq 60); do (exit 0) || exit 9; sleep 0.1; done")

        async def runs() -> bool:
            run = (await innocent.get(f"/v1/jobs/{waits}/status")).json()["latest_run"]
            return bool(run) and run["status"] == "RUNNING"

        await eventually(runs, SLOW, "the run of the other tenant runs")
        for program, reason in (
            (BOMB, LIMITED),
            (HOG, "the runs of this worker together may use 700MiB of memory (--max-memory)"),
        ):
            bomb = await submit(hostile, command=[PYTHON, "-S", "-c", program], retries=0)
            end = await ended(hostile, bomb)
            assert (end["status"], end["losses"]) == ("FAILED", 0)
            assert end["error_message"].startswith(reason), end["error_message"]
        end = await ended(innocent, waits)
        assert (end["status"], end["losses"], end["attempt_number"]) == ("SUCCESS", 0, 1)
    assert worker.poll() is None, cluster.said(worker)
