"""A server that is stopped for a while: the runs of its workers go on, on their first attempt."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from mainspring.kernel.config import DEFAULT_TIMING
from tests.processes.cluster import SLOW, Cluster, eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

# Longer than the old lease of 7 seconds, and shorter than the lease that is granted now.
STOP = 8.0


@pytest.mark.slow
async def test_a_worker_with_an_ordinary_and_an_exclusive_run_lives_through_a_stop_of_its_only_server(
    cluster: Cluster,
) -> None:
    assert DEFAULT_TIMING.base_rescue < STOP < DEFAULT_TIMING.kill - 2.0
    server = await cluster.server()
    worker = await cluster.worker()
    gate = cluster.folder / "go"
    command = f"until [ -e {gate} ]; do sleep 0.05; done"
    ordinary = await cluster.submit(command=command, retries=0)
    exclusive = await cluster.submit(command=command, delivery="at_most_once")
    recurring = await cluster.submit(command=command, schedule={"every": "1s"}, overlap="skip", retries=0)

    async def running(job: str) -> list[str]:
        answer = await cluster.http.get("/v1/runs", params={"job": job, "status": "RUNNING"})
        return [run["run_id"] for run in answer.json()["runs"]]

    async def all_run() -> list[str]:
        found = [await running(job) for job in (ordinary, exclusive, recurring)]
        return [run_ids[0] for run_ids in found] if all(found) else []

    run_ids = await eventually(all_run, SLOW, "the jobs run")
    server.send_signal(signal.SIGSTOP)
    try:
        await asyncio.sleep(STOP)  # that is the fault
    finally:
        server.send_signal(signal.SIGCONT)
    gate.touch()
    for run_id in run_ids:

        async def ended(run_id: str = run_id) -> dict[str, Any]:
            run: dict[str, Any] = (await cluster.http.get(f"/v1/runs/{run_id}")).json()
            return run if run["end_time"] else {}

        run = await eventually(ended, SLOW, "the run ends")
        assert (run["status"], run["attempt_number"]) == ("SUCCESS", 1), run
    assert worker.poll() is None
