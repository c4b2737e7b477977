"""FEATURES 1.2: read, change and cancel one job, in every table that can contain it."""

from __future__ import annotations

from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.roles.assembly import Assembly
from tests.api.bookkeeping import problem, rows
from tests.operations.firing import fire_due
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio

JOB_FIELDS = {
    "job_id", "name", "schedule_type", "status", "schedule_time", "cron_expression", "payload", "max_retries", "owner",
    "description", "labels", "queue", "priority", "next_fire_at", "shard_id", "version", "created_at", "updated_at",
    "task", "schedule", "timezone", "timeout", "retry", "misfire", "overlap", "delivery", "idempotency_key",
}  # fmt: skip
RUN_FIELDS = {
    "run_id", "job_id", "status", "reason", "scheduled_for", "start_time", "end_time", "duration", "modified_time",
    "executor_id", "attempt_number", "error_message", "log_url", "result",
}  # fmt: skip


async def make(api: httpx.AsyncClient, **fields: Any) -> str:
    answer = await api.post("/v1/jobs", json={"task": "noop", **fields})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["job_id"])


async def test_a_job_has_every_field_wherever_it_lies(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    ids = [
        await make(api, schedule=schedule)
        for schedule in ("@daily", {"every": "1h"}, "manual", {"at": "2099-01-01T00:00:00Z"}, "now")
    ]
    due = await make(api, schedule={"at": "2020-01-01T00:00:00Z"})
    await fire_due(assembly, connection)
    worker = HandWorker(api)
    order = next(order for order in await worker.claim(2) if order.job_id == due)
    await worker.report(outcome(order))
    kinds = []
    for job_id in [*ids, due]:
        job = (await api.get(f"/v1/jobs/{job_id}")).json()
        assert job_id == job["job_id"]
        assert job.keys() >= JOB_FIELDS
        kinds.append((job["schedule_type"], job["status"]))
    assert kinds == [
        ("CRON", "SCHEDULED"), ("INTERVAL", "SCHEDULED"), ("MANUAL", "SCHEDULED"), ("FUTURE", "SCHEDULED"),
        ("IMMEDIATE", "RUNNING"), ("FUTURE", "COMPLETED"),
    ]  # fmt: skip
    assert (await api.get(f"/v1/jobs/{due}")).json()["schedule_time"] == "2020-01-01T00:00:00Z"


async def test_a_run_has_every_field_live_and_ended(api: httpx.AsyncClient) -> None:
    job_id = await make(api, payload={"a": 1})
    queued = (await api.get(f"/v1/runs/{job_id}")).json()
    worker = HandWorker(api)
    [order] = await worker.claim()
    running = (await api.get(f"/v1/runs/{job_id}")).json()
    await worker.report(outcome(order, held_ms=1.0, ran_ms=250.0, result={"sum": 3}))
    ended = (await api.get(f"/v1/runs/{job_id}")).json()
    for run in (queued, running, ended):
        assert run.keys() >= RUN_FIELDS
    assert [run["status"] for run in (queued, running, ended)] == ["QUEUED", "RUNNING", "SUCCESS"]
    assert (queued["attempt_number"], queued["start_time"], queued["executor_id"]) == (0, None, None)
    assert (running["attempt_number"], running["executor_id"]) == (1, str(worker.worker_id))
    assert running["start_time"] and running["end_time"] is None and running["duration"] >= 0
    assert (ended["duration"], ended["result"], ended["error_message"]) == (0.25, {"sum": 3}, None)
    assert queued["scheduled_for"] <= ended["start_time"] <= ended["end_time"] == ended["modified_time"]


async def test_any_subset_of_fields_can_be_changed(api: httpx.AsyncClient) -> None:
    job_id = await make(api, schedule="0 9 * * *", owner="bi", payload={"a": 1}, labels={"x": "1"}, max_retries=5)
    before = (await api.get(f"/v1/jobs/{job_id}")).json()
    changes: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"priority": "critical"}, {"priority": "critical"}),
        ({"payload": {"b": 2}, "labels": {"y": "2"}}, {"payload": {"b": 2}, "labels": {"y": "2"}}),
        ({"queue": "heavy", "timeout": "5m"}, {"queue": "heavy", "timeout": 300.0}),
        ({"owner": None, "description": "new"}, {"owner": None, "description": "new"}),
        ({"schedule": {"every": "1h"}}, {"schedule_type": "INTERVAL", "every": 3600.0, "cron_expression": None}),
        ({"cron_expression": "0 10 * * *"}, {"schedule_type": "CRON", "cron_expression": "0 10 * * *", "every": None}),
        ({"timezone": "Asia/Tokyo"}, {"cron_expression": "0 10 * * *", "timezone": "Asia/Tokyo"}),
        ({"retries": 0}, {"max_retries": 0}),
    ]
    expected = dict(before)
    for version, (change, effect) in enumerate(changes, 2):
        answer = await api.request(("PUT", "PATCH")[version % 2], f"/v1/jobs/{job_id}", json=change)
        assert answer.status_code == 200, answer.text
        job = answer.json()
        assert {name: job[name] for name in effect} == effect
        assert (job["version"], answer.headers["etag"]) == (version, f'"{version}"')
        assert job["created_at"] == before["created_at"] and job["updated_at"] > expected["updated_at"]
        assert job == (await api.get(f"/v1/jobs/{job_id}")).json()
        expected = job
    kept = ("job_id", "name", "task", "overlap", "misfire", "shard_id", "status")
    assert {name: expected[name] for name in kept} == {name: before[name] for name in kept}


async def test_a_new_schedule_moves_the_next_fire_and_another_field_does_not(api: httpx.AsyncClient) -> None:
    job_id = await make(api, schedule={"at": "2099-01-01T00:00:00Z"})
    kept = (await api.patch(f"/v1/jobs/{job_id}", json={"priority": "low"})).json()
    assert kept["next_fire_at"] == "2099-01-01T00:00:00Z"
    moved = (await api.patch(f"/v1/jobs/{job_id}", json={"schedule_time": "2098-01-01T00:00:00Z"})).json()
    assert moved["next_fire_at"] == moved["schedule_time"] == "2098-01-01T00:00:00Z"


async def test_if_match_is_honoured(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    job_id = await make(api, schedule="@daily")
    url = f"/v1/jobs/{job_id}"
    tag = (await api.get(url)).headers["etag"]
    assert tag == '"1"'
    assert (await api.patch(url, json={"owner": "a"}, headers={"If-Match": tag})).headers["etag"] == '"2"'
    stored = await connection.fetchrow("select * from mainspring.jobs")
    for stale in (tag, "1", 'W/"1"', '"3"', "0", "9" * 18):
        refused = problem(await api.put(url, json={"owner": "b"}, headers={"If-Match": stale}))
        assert (refused["status"], refused["code"], refused["field"]) == (412, "version_mismatch", "If-Match")
        assert refused["hint"]
    assert await connection.fetchrow("select * from mainspring.jobs") == stored
    for good in ('"2"', "*", "4"):
        assert (await api.patch(url, json={"owner": "c"}, headers={"If-Match": good})).status_code == 200


async def test_an_if_match_that_is_no_version_is_refused(api: httpx.AsyncClient) -> None:
    job_id = await make(api, schedule="@daily")
    for wrong in ("abc", "-1", "1.5", '"1", "2"', "9" * 5000, "\u00b2", '""', ""):
        refused = problem(
            await api.patch(f"/v1/jobs/{job_id}", json={"owner": "b"}, headers={b"If-Match": wrong.encode("latin-1")})
        )
        assert (refused["status"], refused["code"], refused["field"]) == (422, "invalid_input", "If-Match")


async def test_delete_of_a_scheduled_job_cancels_it_and_get_shows_so(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    for schedule in ("@daily", {"at": "2020-01-01T00:00:00Z"}, "manual"):
        job_id = await make(api, schedule=schedule)
        gone = await api.delete(f"/v1/jobs/{job_id}")
        assert (gone.status_code, gone.json()["status"], gone.json()["next_fire_at"]) == (200, "CANCELLED", None)
        assert (await api.get(f"/v1/jobs/{job_id}")).json() == gone.json()
        assert (await api.delete(f"/v1/jobs/{job_id}")).json() == gone.json(), "a second time changes nothing"
        for verb in (":pause", ":runNow"):
            assert (await api.post(f"/v1/jobs/{job_id}{verb}")).status_code == 409
        refused = problem(await api.patch(f"/v1/jobs/{job_id}", json={"owner": "x"}))
        assert (refused["status"], refused["code"]) == (409, "job_cancelled")
    assert await fire_due(assembly, connection) == 0


async def test_delete_of_a_queued_now_job_ends_it_at_once(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    for chosen in ({}, {"job_id": "mine"}):
        job_id = await make(api, **chosen)
        assert (await api.delete(f"/v1/jobs/{job_id}")).json()["status"] == "CANCELLED"
        assert (await api.get(f"/v1/jobs/{job_id}")).json()["status"] == "CANCELLED"
        [run] = (await api.get(f"/v1/jobs/{job_id}/runs")).json()
        assert (run["status"], run["reason"]) == ("CANCELLED", "cancelled before it started")
    stored = await rows(connection)
    assert (stored["runs"], stored["run_history"], stored["dead_letters"]) == (0, 2, 0)


async def test_delete_of_a_running_job_asks_its_worker_and_shows_that_it_did(api: httpx.AsyncClient) -> None:
    job_id = await make(api)
    worker = HandWorker(api)
    [order] = await worker.claim()
    assert (await api.delete(f"/v1/jobs/{job_id}")).json()["status"] == "CANCELLED", "the job; its run is not gone yet"
    [run] = (await api.get(f"/v1/jobs/{job_id}/runs")).json()
    assert (run["status"], run["reason"]) == ("RUNNING", "cancel requested; waiting for its processes to end")
    assert (await worker.exchange()).stop == [order.run_id]
    await worker.report(outcome(order, "CANCELLED"))
    assert (await api.get(f"/v1/jobs/{job_id}")).json()["status"] == "CANCELLED"
    [run] = (await api.get(f"/v1/jobs/{job_id}/runs")).json()
    assert (run["status"], run["reason"]) == ("CANCELLED", "cancelled on request")


async def test_delete_reaches_every_live_run_of_a_job(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    """A one-time job with a generated id is stored as its run. A run that was started by hand is a separate one."""
    job_id = await make(api, schedule={"at": "2020-01-01T00:00:00Z"}, overlap="allow")
    by_hand = (await api.post(f"/v1/jobs/{job_id}:runNow")).json()["run_id"]
    assert await fire_due(assembly, connection) == 1
    job = (await api.get(f"/v1/jobs/{job_id}")).json()
    assert (job["schedule_type"], job["schedule_time"]) == ("FUTURE", "2020-01-01T00:00:00Z")
    runs = (await api.get(f"/v1/jobs/{job_id}/runs")).json()
    assert [run["run_id"] for run in runs] == [by_hand, job_id]
    assert (await api.delete(f"/v1/jobs/{job_id}")).json()["status"] == "CANCELLED"
    runs = (await api.get(f"/v1/jobs/{job_id}/runs")).json()
    assert [run["status"] for run in runs] == ["CANCELLED", "CANCELLED"]
    assert (await rows(connection))["runs"] == 0


async def test_a_one_time_job_that_has_fired_cannot_be_changed(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    ids = [await make(api), await make(api, schedule={"at": "2020-01-01T00:00:00Z"})]
    ids += [await make(api, job_id=f"j{n}", schedule=when) for n, when in enumerate(("now", {"at": "2020-01-01T00Z"}))]
    await fire_due(assembly, connection)
    worker = HandWorker(api)

    async def refused_everywhere() -> None:
        for job_id in ids:
            answers = [await api.patch(f"/v1/jobs/{job_id}", json={"priority": "high"})]
            answers += [await api.post(f"/v1/jobs/{job_id}:{verb}") for verb in ("pause", "resume")]
            for answer in answers:
                assert (answer.status_code, problem(answer)["code"]) == (409, "already_fired")
            assert (await api.get(f"/v1/jobs/{job_id}/upcoming")).json() == {"job_id": job_id, "fires": []}

    await refused_everywhere()
    orders = await worker.claim(4)
    await refused_everywhere()
    await worker.report(*(outcome(order) for order in orders))
    await refused_everywhere()


async def test_a_job_that_never_existed_is_404_everywhere(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    """Also if the id is the id of a run of another job, which must not change."""
    job_id = await make(api, schedule="@daily")
    run_id = (await api.post(f"/v1/jobs/{job_id}:runNow")).json()["run_id"]
    stored = await rows(connection)
    for wrong in ("nope", "0190a1b2-0000-7000-8000-000000000001", run_id, "a%00b", "ä", "x" * 5000):
        url = f"/v1/jobs/{wrong}"
        answers = [await api.get(url + part) for part in ("", "/status", "/runs", "/upcoming", "/missed")]
        answers += [await api.request(method, url, json={"owner": "x"}) for method in ("PUT", "PATCH")]
        answers += [await api.post(url + verb) for verb in (":pause", ":resume", ":runNow", "/runNow", "/pause")]
        answers.append(await api.delete(url))
        assert {answer.status_code for answer in answers} == {404}, wrong
        assert {answer.json()["code"] for answer in answers} == {"not_found"}
    for wrong in ("nope", "0190a1b2-0000-7000-8000-000000000001"):
        answers = [await api.get(f"/v1/runs/{wrong}"), await api.get(f"/v1/runs/{wrong}/why")]
        answers += [await api.post(f"/v1/runs/{wrong}:cancel"), await api.get(f"/v1/dead-letters/{wrong}")]
        assert {answer.status_code for answer in answers} == {404}
    assert await rows(connection) == stored


async def test_every_route_answers_at_jobs_as_well(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    assert (await api.post("/jobs", json={"job_id": "j", "task": "noop", "schedule": "@daily"})).status_code == 201
    assert (await api.post("/jobs:batch", json=[{"task": "noop"}])).status_code == 201
    assert (await api.post("/jobs:validate", json={"task": "noop"})).status_code == 200
    acts = [(await api.post(path, json={})).json() for path in ("/jobs:act", "/v1/jobs:act")]
    assert acts[0]["status"] == 422 and acts[0]["field"] == acts[1]["field"]
    assert [job["job_id"] for job in (await api.get("/jobs?q=j")).json()["jobs"]] == ["j"]
    for part in ("", "/status", "/runs", "/upcoming", "/missed"):
        assert (await api.get(f"/jobs/j{part}")).json() == (await api.get(f"/v1/jobs/j{part}")).json()
    assert (await api.patch("/jobs/j", json={"owner": "a"})).json()["owner"] == "a"
    assert (await api.put("/jobs/j", json={"owner": "b"})).json()["owner"] == "b"
    assert (await api.post("/jobs/j:pause")).json()["status"] == "PAUSED"
    assert (await api.post("/jobs/j/resume")).json()["status"] == "SCHEDULED"
    assert (await api.post("/jobs/j/runNow")).status_code == 202
    assert (await api.delete("/jobs/j")).json()["status"] == "CANCELLED"


async def test_a_change_to_now_fires_once(api: httpx.AsyncClient) -> None:
    await api.post("/v1/jobs", json={"job_id": "hourly", "task": "hello", "schedule": "0 * * * *"})
    now = (await api.put("/v1/jobs/hourly", json={"schedule_type": "IMMEDIATE", "cron_expression": None})).json()
    assert (now["schedule_type"], now["next_fire_at"]) == ("FUTURE", now["schedule_time"])
    assert now["schedule_time"] <= now["updated_at"]


async def test_a_job_is_never_moved_to_a_time_it_has_fired_for(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await api.post("/v1/jobs", json={"job_id": "hourly", "task": "hello", "schedule": "0 * * * *"})
    fired = "2098-11-15T04:00:00+00:00"
    await connection.execute("update mainspring.jobs set last_fired_for = $1::text::timestamptz", fired)
    answer = await api.patch("/v1/jobs/hourly", json={"schedule": {"at": fired}})
    assert (answer.status_code, answer.json()["code"]) == (422, "already_fired_for")
    assert (await api.patch("/v1/jobs/hourly", json={"schedule": {"at": "2099-01-01T00:00:00Z"}})).status_code == 200
