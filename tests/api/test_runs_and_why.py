"""FEATURES 1.3 and 3.17: search for runs, and the explanation why a run is not running."""

from __future__ import annotations

from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.roles.assembly import Assembly
from tests.api.bookkeeping import problem
from tests.operations.firing import fire_due
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio


async def make(api: httpx.AsyncClient, job_id: str, **fields: Any) -> None:
    answer = await api.post("/v1/jobs", json={"job_id": job_id, "task": "noop", **fields})
    assert answer.status_code == 201, answer.text


async def found(api: httpx.AsyncClient, query: str) -> list[str]:
    answer = await api.get(f"/v1/runs?{query}")
    assert answer.status_code == 200, answer.text
    return sorted(run["job_id"] for run in answer.json()["runs"])


async def why(api: httpx.AsyncClient, run_id: object) -> str:
    return str((await api.get(f"/v1/runs/{run_id}/why")).json()["why"])


async def run_of(api: httpx.AsyncClient, job_id: str) -> dict[str, Any]:
    [run] = (await api.get(f"/v1/jobs/{job_id}/runs")).json()
    return dict(run)


async def one_of_each(api: httpx.AsyncClient) -> HandWorker:
    """One run in every state, named after the state."""
    worker = HandWorker(api, queues=["default", "heavy"])
    worker.card.slots = 1  # its run uses the slot
    await make(api, "success", queue="heavy")
    await make(api, "dead", max_retries=0)
    await make(api, "cancelled")
    await make(api, "backing-off", retry={"base": "1h"})
    orders = {order.job_id: order for order in await worker.claim(4)}
    await api.delete("/v1/jobs/cancelled")
    await worker.report(
        outcome(orders["success"], result=5),
        outcome(orders["dead"], "FAILED", error="ValueError: no such 100%_account"),
        outcome(orders["cancelled"], "CANCELLED"),
        outcome(orders["backing-off"], "FAILED", error="TimeoutError: too slow\nline 2"),
    )
    await make(api, "running", queue="heavy", priority="high")
    await worker.claim()
    await make(api, "queued", task="other")
    return worker


async def test_runs_are_found_by_the_worker_of_their_last_attempt(api: httpx.AsyncClient) -> None:
    worker, other = await one_of_each(api), HandWorker(api)
    assert await found(api, f"worker={worker.worker_id}&status=RUNNING") == ["running"]
    assert set(await found(api, f"worker={worker.worker_id}")) >= {"success", "dead", "running"}
    assert await found(api, f"worker={other.worker_id}") == []
    refused = await api.get("/v1/runs?worker=vm-1")
    assert (refused.status_code, problem(refused)["field"]) == (422, "worker")


async def test_runs_are_searched_by_status_in_any_case(api: httpx.AsyncClient) -> None:
    await one_of_each(api)
    expected = {
        "": ["backing-off", "cancelled", "dead", "queued", "running", "success"],
        "status=SUCCESS": ["success"], "status=success": ["success"], "status=completed": ["success"],
        "status=COMPLETED": ["success"], "status=failed": ["dead"], "status=Cancelled": ["cancelled"],
        "status=running": ["running"], "status=queued": ["queued"], "status=scheduled": ["backing-off"],
        "status=pending": ["backing-off", "queued"], "status=PENDING": ["backing-off", "queued"],
        "status=waiting": [], "status=held": [], "status=skipped": [],
        "status=running,failed": ["dead", "running"], "status=queued&status=completed": ["queued", "success"],
        "status=scheduled,running": ["backing-off", "running"],
    }  # fmt: skip
    assert {query: await found(api, query) for query in expected} == expected


async def test_runs_are_searched_by_job_queue_task_error_and_time(api: httpx.AsyncClient) -> None:
    await one_of_each(api)
    middle = (await api.get("/v1/runs?job=running")).json()["runs"][0]["scheduled_for"]
    expected = {
        "job=dead": ["dead"], "job=queued": ["queued"], "job=nope": [],
        "queue=heavy": ["running", "success"], "queue=none": [],
        "task=other": ["queued"], "task=none": [], "queue=default&task=other": ["queued"], "queue=heavy&task=other": [],
        "error=no such": ["dead"], "error=NO SUCH": ["dead"], "error=100%25_acc": ["dead"], "error=_": ["dead"],
        "error=too slow": ["backing-off"], "error=error": ["backing-off", "dead"], "error=nothing": [],
        f"since={middle}": ["queued", "running"],
        f"until={middle}": ["backing-off", "cancelled", "dead", "success"],
        f"since={middle}&until={middle}": [], "since=2099-01-01T00:00:00Z": [], "until=2020-01-01T00:00:00Z": [],
        f"queue=heavy&status=completed&until={middle}": ["success"],
    }  # fmt: skip
    assert {query: await found(api, query) for query in expected} == expected


async def test_a_run_of_a_job_with_an_id_of_ours_is_found_by_it(api: httpx.AsyncClient) -> None:
    job_id = (await api.post("/v1/jobs", json={"task": "noop"})).json()["job_id"]
    assert await found(api, f"job={job_id}") == [job_id]
    worker = HandWorker(api)
    await worker.report(outcome((await worker.claim())[0]))
    assert await found(api, f"job={job_id}") == [job_id]


async def test_pages_of_runs_are_newest_first_and_neither_skip_nor_repeat(api: httpx.AsyncClient) -> None:
    made = (await api.post("/v1/jobs:batch", json=[{"task": "noop"}] * 20)).json()["job_ids"]
    worker = HandWorker(api)
    await worker.report(*(outcome(order) for order in await worker.claim(9)))
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = (await api.get("/v1/runs", params={"limit": 6, **({"cursor": cursor} if cursor else {})})).json()
        seen += [run["run_id"] for run in page["runs"]]
        cursor = page["next"]
        await api.post("/v1/jobs", json={"task": "noop"})
        await worker.report(*(outcome(order) for order in await worker.claim(1)))
    assert seen == made[::-1]


async def test_a_task_that_nobody_offers_stays_queued_with_that_reason_and_never_succeeds(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    for task in ("missing", "shell", "noop"):
        await make(api, task, task=task, schedule={"at": "2020-01-01T00:00:00Z"}, **_command(task))
    await make(api, "elsewhere", queue="heavy")
    await fire_due(assembly, connection)
    tasks = {"missing": "missing", "shell": "shell", "noop": "noop", "elsewhere": "noop"}
    for job_id, task in tasks.items():
        run = await run_of(api, job_id)
        assert (run["status"], run["reason"]) == ("QUEUED", f"no worker offers task {task}")
        assert await why(api, run["run_id"]) == f"It is queued: no worker offers task {task}."
    worker = HandWorker(api, tasks=["noop", "another"])
    [order] = (await worker.hello(free=10)).runs
    assert order.job_id == "noop"
    assert (await worker.exchange(free=10)).runs == []
    for job_id in ("missing", "shell", "elsewhere"):
        run = await run_of(api, job_id)
        place = " of queue heavy" if job_id == "elsewhere" else ""
        assert (run["status"], run["reason"]) == ("QUEUED", f"no worker{place} offers task {tasks[job_id]}")
    assert await found(api, "status=success") == []


def _command(task: str) -> dict[str, Any]:
    return {"command": "true"} if task == "shell" else {}


async def test_why_says_in_a_sentence_what_a_run_waits_for_or_came_to(api: httpx.AsyncClient) -> None:
    worker = await one_of_each(api)
    await make(api, "ahead")
    await make(api, "behind")
    sentences = {job_id: await why(api, (await run_of(api, job_id))["run_id"]) for job_id in (
        "success", "dead", "cancelled", "running", "queued", "ahead", "behind", "backing-off",
    )}  # fmt: skip
    backing_off = sentences.pop("backing-off")
    assert sentences == {
        "success": "It ran and succeeded on attempt 1.",
        "dead": "It ended FAILED: failed 1 time, no tries left. The last error: ValueError: no such 100%_account",
        "cancelled": "It ended CANCELLED: cancelled on request.",
        "running": f"It is running on worker {worker.worker_id}, attempt 1 of 4.",
        "queued": "It is queued: no worker offers task other.",
        "ahead": "It is queued: waiting for a free slot.",
        "behind": "It waits for a free slot; 1 run of its lane is ahead of it.",
    }
    assert backing_off.startswith("It is backing off after attempt 1 of 4, until 20")
    assert backing_off.endswith("Z. The last error: TimeoutError: too slow")


async def test_a_run_is_cancelled_by_verb_and_by_path(api: httpx.AsyncClient) -> None:
    for n, suffix in enumerate((":cancel", "/cancel")):
        await make(api, f"j{n}")
        run = await run_of(api, f"j{n}")
        cancelled = await api.post(f"/v1/runs/{run['run_id']}{suffix}")
        assert (cancelled.status_code, cancelled.json()["status"]) == (202, "CANCELLED")
        again = await api.post(f"/v1/runs/{run['run_id']}{suffix}")
        assert (again.status_code, again.json()) == (202, cancelled.json())
    refused = problem(await api.post(f"/v1/runs/{run['run_id']}:explode"))
    assert (refused["status"], refused["code"]) == (404, "no_such_route")


async def test_a_running_run_is_asked_to_stop_and_one_that_has_ended_cannot_be_cancelled(
    api: httpx.AsyncClient,
) -> None:
    await one_of_each(api)
    run = await run_of(api, "running")
    asked = (await api.post(f"/v1/runs/{run['run_id']}:cancel")).json()
    assert (asked["status"], asked["reason"]) == ("RUNNING", "cancel requested; waiting for its processes to end")
    assert await why(api, run["run_id"]) == (
        f"It runs on worker {run['executor_id']}: cancel requested; waiting for its processes to end."
    )
    for job_id in ("success", "dead"):
        ended = await run_of(api, job_id)
        refused = problem(await api.post(f"/v1/runs/{ended['run_id']}:cancel"))
        assert (refused["status"], refused["code"]) == (409, "run_ended")
        assert await run_of(api, job_id) == ended


async def test_why_tells_of_labels_that_no_worker_has(api: httpx.AsyncClient) -> None:
    await make(api, "trained", required_labels={"zone": "b", "gpu": "yes"})
    run_id = (await run_of(api, "trained"))["run_id"]
    assert await why(api, run_id) == "It is queued: no worker offers task noop."
    worker = HandWorker(api)
    await worker.hello()
    lacking = "no worker that offers task noop has the required labels gpu=yes, zone=b"
    assert await why(api, run_id) == f"It is queued: {lacking}."
    await make(api, "elsewhere", queue="far")
    far = (await run_of(api, "elsewhere"))["run_id"]
    assert await why(api, far) == "It is queued: no worker of queue far offers task noop."
    assert (await api.get("/v1/runs?job=trained")).json()["runs"][0]["reason"] == lacking
    able = HandWorker(api)
    able.card.labels = {"zone": "b", "gpu": "yes", "more": "x"}
    await able.hello()
    assert await why(api, run_id) == "It is queued: waiting for a free slot."
    await able.exchange(draining=True)
    assert await why(api, run_id) == "It is queued: every worker that could take it is draining."


async def test_why_tells_of_a_tasks_worker_concurrency_and_of_slots_that_are_kept(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    for job_id in ("one", "two", "three"):
        await make(api, job_id)
    await connection.execute("update mainspring.runs set ready_at = ready_at - interval '1 minute'")
    full, able = HandWorker(api), HandWorker(api)
    full.card.slots = able.card.slots = 1
    await full.claim()
    await able.claim()
    [run_id] = [run["run_id"] for run in (await api.get("/v1/runs?status=queued")).json()["runs"]]
    assert await why(api, run_id) == "It is queued: waiting for a free slot."
    able.card.slots = 4
    await able.hello()
    narrow = "the worker with free slots runs 1 of task noop, as many as its worker_concurrency allows"
    assert await why(api, run_id) == f"It is queued: {narrow}."
    able.card.queues = ["default", "a", "b", "c"]
    await able.hello()
    kept = "the free slots are kept for other queues (weights)"
    assert await why(api, run_id) == f"It is queued: {narrow}, or {kept}."
    idle = HandWorker(api)
    await idle.hello()
    assert await why(api, run_id) == "It is queued: waiting for a free slot.", "it is about to be fetched"


async def test_why_tells_when_a_waiting_run_expires(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    await make(api, "a", expires_in="1h", run_timeout="2h")
    run = await run_of(api, "a")
    expires_at = await connection.fetchval("select expires_at from mainspring.runs")
    stamp = f"{expires_at:%Y-%m-%dT%H:%M:%SZ}"
    assert await why(api, run["run_id"]) == (
        f"It is queued: no worker offers task noop. It expires at {stamp} if it has not started by then (expires_in)."
    )
    await HandWorker(api).claim()
    assert "expires" not in await why(api, run["run_id"]), "it is a worker's now"
