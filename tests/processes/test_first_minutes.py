"""The first steps of a new user, on real processes."""

from __future__ import annotations

import pytest

from tests.processes.cluster import SLOW, Cluster, eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
APP = "tests.processes.sample_app:app"


async def test_python_tasks_run_and_their_results_come_back(cluster: Cluster) -> None:
    await cluster.server()
    await cluster.worker(app=APP)
    hello = await cluster.submit(task="hello", payload={"name": "ada"})
    add = await cluster.submit(task="add", payload={"a": 2, "b": 40})
    assert (await cluster.ended(hello))["result"] == "hello ada"
    assert (await cluster.ended(add))["result"] == 42


async def test_a_failing_task_is_tried_again_and_succeeds(cluster: Cluster) -> None:
    await cluster.server()
    await cluster.worker(app=APP)
    job_id = await cluster.submit(task="fails.twice", retry={"base": "50ms"})
    run = await cluster.ended(job_id)
    assert (run["status"], run["attempt_number"], run["result"]) == ("SUCCESS", 3, 3)


async def test_a_payload_that_does_not_fit_fails_without_retry_and_becomes_a_dead_letter(cluster: Cluster) -> None:
    """No worker has declared the task's parameters yet. Afterwards such a submission is rejected."""
    await cluster.server()
    job_id = await cluster.submit(task="add", payload={"a": "two", "b": 40})
    await cluster.worker(app=APP)
    run = await cluster.ended(job_id)
    assert (run["status"], run["attempt_number"]) == ("FAILED", 1)
    assert "a" in run["error_message"]
    letters = (await cluster.http.get("/v1/dead-letters")).json()["dead_letters"]
    assert [(letter["job_id"], letter["payload"]) for letter in letters] == [(job_id, {"a": "two", "b": 40})]

    refused = await cluster.http.post("/v1/jobs", json={"task": "add", "payload": {"a": "two", "b": 40}})
    assert (refused.status_code, refused.json()["field"]) == (422, "payload.a")


async def test_an_unregistered_task_never_succeeds(cluster: Cluster) -> None:
    await cluster.server()
    await cluster.worker(app=APP)
    lost = await cluster.submit(task="nobody.offers.this")
    # Another job completes meanwhile, so the worker could have taken the first one.
    await cluster.ended(await cluster.submit(task="hello"))
    run = await cluster.latest_run(lost)
    assert (run["status"], run["reason"]) == ("QUEUED", "no worker offers task nobody.offers.this")
    why = (await cluster.http.get(f"/v1/runs/{run['run_id']}/why")).json()
    assert "no worker offers task nobody.offers.this" in why["why"]


async def test_a_running_shell_job_is_cancelled_with_its_children(cluster: Cluster) -> None:
    await cluster.server()
    await cluster.worker()
    job_id = await cluster.submit(command="sleep 300 & sleep 300")

    async def running() -> bool:
        return (await cluster.latest_run(job_id)).get("status") == "RUNNING"

    await eventually(running, SLOW, "the job runs")
    assert (await cluster.http.delete(f"/v1/jobs/{job_id}")).status_code == 200
    run = await cluster.ended(job_id)
    assert (run["status"], run["reason"]) == ("CANCELLED", "cancelled on request")
    assert (await cluster.http.get(f"/v1/jobs/{job_id}")).json()["status"] == "CANCELLED"


async def test_a_job_times_out_and_says_so(cluster: Cluster) -> None:
    await cluster.server()
    await cluster.worker()
    job_id = await cluster.submit(command="sleep 300", timeout=0.3, retries=0)
    run = await cluster.ended(job_id)
    assert run["status"] == "FAILED"
    assert "timed out" in run["error_message"]
