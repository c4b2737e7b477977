"""Middlewares of an application in a real worker: on its loop, in threads and in child interpreters."""

from __future__ import annotations

import pytest

from tests.processes.cluster import Cluster

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def test_attempts_of_each_kind_and_submissions_of_tasks_have_the_middlewares_around_them(
    cluster: Cluster,
) -> None:
    await cluster.server()
    await cluster.worker(app="tests.processes.around_app:app")
    for task in ("on_the_loop", "in_a_thread", "in_a_process"):
        job_id = await cluster.submit(task=task)
        run = await cluster.ended(job_id)
        assert run["result"] == f"{task} of {job_id}"
        log = (await cluster.http.get(f"/v1/runs/{run['run_id']}/logs")).text
        assert f"outcome {task} of {job_id}" in log
    submitted = (await cluster.ended(await cluster.submit(task="submits")))["result"]
    assert (await cluster.http.get(f"/v1/jobs/{submitted}")).json()["labels"] == {"from": "submits"}
