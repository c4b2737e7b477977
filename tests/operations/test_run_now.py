"""FEATURES 1.2: run-now with a payload and an idempotency key, its answer, and one-time jobs that have fired."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.domain.run_key import key_of
from mainspring.roles.assembly import Assembly
from tests.api.bookkeeping import problem, rows
from tests.operations.firing import fire_due
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.test_kept_payloads import end, make, run_of

pytestmark = pytest.mark.anyio

STILL_ALIVE = "overlap: an earlier run of this job was still alive"


async def run_now(api: httpx.AsyncClient, job_id: str, **body: Any) -> tuple[int, dict[str, Any]]:
    answer = await api.post(f"/v1/jobs/{job_id}:runNow", json=body)
    assert answer.status_code in (200, 202), answer.text
    return answer.status_code, answer.json()


async def test_the_answer_says_what_became_of_the_run(api: httpx.AsyncClient) -> None:
    job_id = await make(api, schedule="@daily")
    for path in (f"/v1/jobs/{job_id}:runNow", f"/v1/jobs/{job_id}/runNow", f"/jobs/{job_id}/runNow"):
        for body in (b"", b"{}"):
            answer = await api.post(path, content=body, headers={"Content-Type": "application/json"})
            run = answer.json()
            alive = run["run_id"] == (await api.get(f"/v1/jobs/{job_id}/runs")).json()[-1]["run_id"]
            assert (answer.status_code, run["status"]) == (202, "QUEUED" if alive else "SKIPPED")
            assert alive or run["reason"] == STILL_ALIVE
            assert (run["job_id"], run["replay_of"]) == (job_id, None)


async def test_it_has_the_given_payload_and_the_job_keeps_its_own(api: httpx.AsyncClient) -> None:
    job_id = await make(api, schedule="@daily", payload={"a": 1}, overlap="allow")
    _, run = await run_now(api, job_id, payload={"a": 2})
    assert (await run_of(api, run["run_id"]))["payload"] == {"a": 2}
    _, run = await run_now(api, job_id, payload=None)
    assert (await run_of(api, run["run_id"]))["payload"] is None
    _, run = await run_now(api, job_id)
    assert (await run_of(api, run["run_id"]))["payload"] == {"a": 1}
    assert (await api.get(f"/v1/jobs/{job_id}")).json()["payload"] == {"a": 1}
    job_id = await make(api, schedule="manual", task="shell", payload={"command": "echo a"})
    await run_now(api, job_id, payload={"command": "echo b"})
    assert (await end(api, tasks=("shell",))).command == "echo b"


async def test_a_payload_of_null_that_does_not_fit_has_a_hint(api: httpx.AsyncClient) -> None:
    job_id = await make(api, schedule="manual", task="shell", payload={"command": "echo a"})
    refused = await api.post(f"/v1/jobs/{job_id}:runNow", json={"payload": None})
    assert (refused.status_code, "leave the payload out for the job's own" in refused.json()["hint"]) == (422, True)
    assert (await api.get(f"/v1/jobs/{job_id}/runs")).json() == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"paylod": {}}, "paylod"), ({"queue": "x"}, "queue"), ({"payload": [1]}, "payload"),
        ({"payload": {"x": "y" * 300_000}}, "payload"), ({"idempotency_key": ""}, "idempotency_key"),
        ({"idempotency_key": "a\nb"}, "idempotency_key"), ({"idempotency_key": 5}, "idempotency_key"),
        ({"idempotency_key": "k" * 201}, "idempotency_key"),
    ],
)  # fmt: skip
async def test_what_it_does_not_take_is_refused_by_name(
    api: httpx.AsyncClient, connection: asyncpg.Connection, body: Any, field: str
) -> None:
    job_id = await make(api, schedule="@daily")
    before = await rows(connection)
    refused = problem(await api.post(f"/v1/jobs/{job_id}:runNow", json=body))
    assert refused["status"] in (413, 422) and refused["field"] == field
    assert await rows(connection) == before
    for verb in ("pause", "resume"):
        for other in ({"payload": {}}, {"idempotency_key": "k"}, {"x": 1}):
            refused = problem(await api.post(f"/v1/jobs/{job_id}:{verb}", json=other))
            assert (refused["status"], refused["field"]) == (422, *other)


async def test_a_repeat_of_a_key_answers_with_the_same_run_also_after_its_end(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    job_id, other = await make(api, schedule="@daily"), await make(api, schedule="@daily")
    status, first = await run_now(api, job_id, idempotency_key="k", payload={"a": 1, "b": 2})
    assert status == 202
    for expected in ("QUEUED", "SUCCESS"):
        body = {"payload": {"b": 2, "a": 1}, "idempotency_key": "k"}
        answer = await api.post(f"/v1/jobs/{job_id}/runNow", json=body)
        assert (answer.status_code, answer.json()["run_id"]) == (200, first["run_id"])
        assert answer.json()["status"] == expected
        if expected == "QUEUED":
            await end(api)
    for payload in ({"payload": {"a": 2}}, {"payload": None}, {}):
        refused = problem(await api.post(f"/v1/jobs/{job_id}:runNow", json={"idempotency_key": "k", **payload}))
        assert (refused["status"], refused["code"]) == (409, "idempotency_key_reused")
    assert (await run_now(api, other, idempotency_key="k"))[0] == 202, "the scope of a key is its job"
    submitted = await api.post("/v1/jobs", json={"task": "noop", "idempotency_key": "k"})
    assert submitted.status_code == 201, "the key of a submission is another one"
    await connection.execute("delete from mainspring.run_history")
    status, gone = await run_now(api, job_id, idempotency_key="k", payload={"a": 1, "b": 2})
    assert (status, gone["run_id"], gone["status"]) == (200, first["run_id"], None)
    await api.delete(f"/v1/jobs/{job_id}")
    assert (await run_now(api, job_id, idempotency_key="k", payload={"a": 1, "b": 2}))[0] == 200
    assert (
        problem(await api.post(f"/v1/jobs/{job_id}:runNow", json={"idempotency_key": "n"}))["code"] == "job_cancelled"
    )
    keys = await connection.fetch("select job_id, key from mainspring.run_now_keys order by job_id")
    assert sorted(map(tuple, keys)) == sorted([(job_id, "k"), (other, "k")]), "a refused request takes no key"


async def test_a_skipped_run_belongs_to_its_key(api: httpx.AsyncClient) -> None:
    job_id = await make(api, schedule="@daily")
    await run_now(api, job_id)
    _, skipped = await run_now(api, job_id, idempotency_key="k")
    assert (skipped["status"], skipped["reason"]) == ("SKIPPED", STILL_ALIVE)
    assert await run_now(api, job_id, idempotency_key="k") == (200, skipped)


@pytest.mark.parametrize("fields", [{"schedule": "@daily", "overlap": "allow"}, {"overlap": "allow"}])
async def test_requests_with_one_key_at_the_same_time_create_one_run(
    api: httpx.AsyncClient, connection: asyncpg.Connection, fields: Any
) -> None:
    job_id = await make(api, **fields)
    answers = await asyncio.gather(
        *(api.post(f"/v1/jobs/{job_id}:runNow", json={"idempotency_key": "k"}) for _ in range(8))
    )
    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [202]
    assert len({answer.json()["run_id"] for answer in answers}) == 1
    created = "select count(*) from mainspring.runs where trigger is not null"
    assert await connection.fetchval(created) == 1


# ------------------------------------------------------------------------------------------- one-time jobs that fired


async def fired(api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, **fields: Any) -> str:
    job_id = await make(api, **fields)
    await fire_due(assembly, connection)
    return job_id


FIRED: list[dict[str, Any]] = [
    {}, {"job_id": "mine"}, {"schedule": {"at": "2020-01-01T00:00:00Z"}},
    {"job_id": "mine", "schedule": {"at": "2020-01-01T00:00:00Z"}},
]  # fmt: skip


@pytest.mark.parametrize("fields", FIRED)
async def test_a_one_time_job_that_has_fired_is_repeated(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, fields: Any
) -> None:
    job_id = await fired(api, assembly, connection, payload={"a": 1}, retries=7, **fields)
    [original] = (await api.get(f"/v1/jobs/{job_id}/runs")).json()
    _, skipped = await run_now(api, job_id)
    assert (skipped["status"], skipped["reason"], skipped["replay_of"]) == ("SKIPPED", STILL_ALIVE, original["run_id"])
    keys = {key_of(await end(api))}
    for payload in ({"a": 1}, {"a": 2}, {"a": 1}):
        _, run = await run_now(api, job_id, **({} if payload == {"a": 1} else {"payload": payload}))
        assert (run["status"], run["replay_of"]) == ("QUEUED", original["run_id"])
        found = await run_of(api, run["run_id"])
        assert (found["payload"], found["max_attempts"], found["job_id"]) == (payload, 8, job_id)
        assert found["scheduled_for"] > original["scheduled_for"]
        keys.add(key_of(await end(api)))
    assert len(keys) == 4, "each has effects"
    status, run = await run_now(api, job_id, idempotency_key="k")
    assert (status, await run_now(api, job_id, idempotency_key="k")) == (202, (200, run))


async def test_a_job_that_allows_overlapping_runs_is_repeated_beside_its_run(api: httpx.AsyncClient) -> None:
    job_id = await make(api, overlap="allow")
    assert (await api.get(f"/v1/jobs/{job_id}")).json()["overlap"] == "allow"
    for _ in range(2):
        assert (await run_now(api, job_id))[1]["status"] == "QUEUED"


@pytest.mark.parametrize("fields", FIRED)
async def test_a_cancelled_job_is_refused_and_the_hint_works(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, fields: Any
) -> None:
    job_id = await fired(api, assembly, connection, **fields)
    await api.delete(f"/v1/jobs/{job_id}")
    refused = problem(await api.post(f"/v1/jobs/{job_id}:runNow"))
    assert (refused["status"], refused["code"]) == (409, "job_cancelled")
    [original] = (await api.get(f"/v1/jobs/{job_id}/runs")).json()
    assert refused["hint"] == "create it again with POST /v1/jobs"
    assert (await api.post(f"/v1/runs/{original['run_id']}:retry")).status_code == 202


async def test_a_fired_job_whose_payload_was_dropped_needs_one(api: httpx.AsyncClient) -> None:
    job_id = await make(api, payload={"a": 1}, keep_payload=False)
    await end(api)
    assert problem(await api.post(f"/v1/jobs/{job_id}:runNow"))["code"] == "payload_dropped"
    assert (await run_now(api, job_id, payload={"a": 2}))[0] == 202


async def test_requests_at_the_same_time_repeat_a_job_once_that_does_not_overlap(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    job_id = await make(api)
    await end(api)
    answers = await asyncio.gather(*(api.post(f"/v1/jobs/{job_id}:runNow") for _ in range(6)))
    assert sorted(answer.json()["status"] for answer in answers) == ["QUEUED"] + ["SKIPPED"] * 5
    assert await connection.fetchval("select count(*) from mainspring.runs") == 1


async def test_a_paused_job_runs_and_stays_paused(api: httpx.AsyncClient) -> None:
    for schedule in ("@daily", {"at": "2099-01-01T00:00:00Z"}):
        job_id = await make(api, schedule=schedule)
        await api.post(f"/v1/jobs/{job_id}:pause")
        assert (await run_now(api, job_id, payload={"b": 1}))[1]["status"] == "QUEUED"
        assert (await api.get(f"/v1/jobs/{job_id}")).json()["status"] == "PAUSED"


@pytest.mark.parametrize("job_id", ["nope", "0190a1b2-0000-7000-8000-000000000001", "a%00b", "x" * 5000])
async def test_an_unknown_job_is_404_and_takes_no_key(
    api: httpx.AsyncClient, connection: asyncpg.Connection, job_id: str
) -> None:
    answer = await api.post(f"/v1/jobs/{job_id}:runNow", json={"idempotency_key": "k"})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert await connection.fetchval("select count(*) from mainspring.run_now_keys") == 0


async def test_a_repeat_waits_for_an_idle_worker_like_every_run(api: httpx.AsyncClient) -> None:
    """Its retries and its end are those of any run."""
    job_id = await make(api)
    await end(api)
    _, run = await run_now(api, job_id)
    worker = HandWorker(api)
    [order] = await worker.claim()
    await worker.report(outcome(order, "FAILED", error="boom", retry=False))
    dead = (await api.get("/v1/dead-letters")).json()["dead_letters"]
    assert [(letter["run_id"], letter["replay_of"]) for letter in dead] == [(run["run_id"], job_id)]
    await api.post(f"/v1/runs/{run['run_id']}:retry")
    [again] = await worker.claim()
    assert key_of(again) == key_of(order)
