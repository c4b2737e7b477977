"""FEATURES 1.1: `POST /v1/jobs:batch` takes up to 10,000 jobs, all or nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import httpx
import pytest

from tests.api.bookkeeping import problem, rows

pytestmark = pytest.mark.anyio

BATCH = "/v1/jobs:batch"


async def test_ten_thousand_jobs_go_in_at_once_and_ten_thousand_and_one_do_not(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    jobs = [{"task": "noop", "payload": {"n": n}} for n in range(10_001)]
    refused = problem(await api.post(BATCH, json=jobs))
    assert (refused["status"], refused["code"], refused["field"]) == (422, "batch_too_large", "jobs")
    assert refused["expected"] == "at most 10000"
    assert sum((await rows(connection)).values()) == 0

    made = await api.post(BATCH, json=jobs[:10_000])
    assert made.status_code == 201
    ids = made.json()["job_ids"]
    assert made.json()["accepted"] == len(set(ids)) == 10_000
    assert (await rows(connection))["runs"] == 10_000
    for n in (0, 4_567, 9_999):
        assert (await api.get(f"/v1/jobs/{ids[n]}")).json()["payload"] == {"n": n}


async def test_a_bare_array_and_an_object_are_both_taken_and_the_ids_stand_in_order(api: httpx.AsyncClient) -> None:
    jobs: list[dict[str, Any]] = [
        {"task": "a"}, {"job_id": "mine", "task": "b", "schedule": "@daily"}, {"command": "echo", "name": "c"},
        {"task": "d", "schedule": {"at": "2099-01-01T00:00:00Z"}}, {"task": "e", "queue": "q", "priority": 3},
    ]  # fmt: skip
    for body in (jobs, {"jobs": [job | {"job_id": f"{n}"} for n, job in enumerate(jobs)]}):
        made = await api.post(BATCH, json=body)
        assert made.status_code == 201
        tasks = [(await api.get(f"/v1/jobs/{job_id}")).json()["task"] for job_id in made.json()["job_ids"]]
        assert tasks == ["a", "b", "shell", "d", "e"]


async def test_an_empty_batch_is_accepted_and_does_nothing(api: httpx.AsyncClient) -> None:
    bodies: tuple[Any, ...] = ([], {"jobs": []})
    for body in bodies:
        assert (await api.post(BATCH, json=body)).json() == {"accepted": 0, "job_ids": []}


async def test_one_bad_job_stops_all_and_every_error_is_listed_by_its_index(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    jobs: list[dict[str, Any]] = [{"task": "noop", "job_id": f"j{n}", "idempotency_key": f"k{n}"} for n in range(6)]
    jobs[1] |= {"schedule": {"cron": "0 0 30 2 *"}}
    jobs[3] |= {"priority": "urgent"}
    jobs[4] |= {"notify": [{"on": ["boom"], "to": ["x"]}]}
    refused = problem(await api.post(BATCH, json=jobs))
    assert (refused["status"], refused["code"]) == (422, "invalid_batch")
    assert [(error["index"], error["field"], error["code"]) for error in refused["errors"]] == [
        (1, "jobs[1].schedule.cron", "cron_never_fires"),
        (3, "jobs[3].priority", "invalid_input"),
        (4, "jobs[4].notify[0].on", "invalid_input"),
    ]
    assert refused["field"] == "jobs[1].schedule.cron"
    assert sum((await rows(connection)).values()) == 0


async def test_what_the_wire_refuses_is_listed_by_index_too(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    jobs: list[Any] = [
        {"task": "noop"}, {"tsak": "noop"}, {"task": 5}, 7, {"task": "a", "schedule": {"crn": "@daily"}},
        {"task": "a", "retry": {"max_attempt": 3}}, {"task": "a", "labels": {"a": 1}},
        {"task": "a", "retry_policy": {"max_attempt": 3}}, {"task": "a", "retry_policy": {"max_retries": 3}},
    ]  # fmt: skip
    refused = problem(await api.post(BATCH, json={"jobs": jobs}))
    found = [(error["index"], error["field"], error["code"], error.get("hint")) for error in refused["errors"]]
    beside = "max_retries stands beside retry_policy, not in it"
    beside += "; known are: max_attempts, backoff, base, cap, jitter, rules"
    assert found == [
        (1, "jobs[1].tsak", "unknown_field", "did you mean 'task'?"),
        (2, "jobs[2].task", "invalid_input", "write a text with quotes"),
        (3, "jobs[3]", "invalid_input", None),
        (4, "jobs[4].schedule.crn", "unknown_field", "did you mean 'cron'?"),
        (5, "jobs[5].retry.max_attempt", "unknown_field", "did you mean 'max_attempts'?"),
        (6, "jobs[6].labels[...]", "invalid_input", "write a text with quotes"),
        (7, "jobs[7].retry_policy.max_attempt", "unknown_field", "did you mean 'max_attempts'?"),
        (8, "jobs[8].retry_policy.max_retries", "unknown_field", beside),
    ]
    assert sum((await rows(connection)).values()) == 0


async def test_a_batch_of_nothing_but_errors_lists_the_first_hundred(api: httpx.AsyncClient) -> None:
    for job in ({"task": ""}, {"task": "a", "priority": "urgent"}):
        answer = await api.post(BATCH, json=[job] * 10_000)
        assert answer.status_code == 422
        assert [error["index"] for error in answer.json()["errors"]] == list(range(100))
        assert "or more" in answer.json()["detail"]


async def test_repeats_of_known_keys_count_as_accepted(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    jobs = [{"task": "noop", "payload": {"n": n}, "idempotency_key": f"k{n}"} for n in range(5)]
    first = (await api.post(BATCH, json=jobs[:3])).json()["job_ids"]
    again = await api.post(BATCH, json=jobs)
    assert again.status_code == 201
    assert again.json()["accepted"] == 5
    assert again.json()["job_ids"][:3] == first
    stored = await rows(connection)
    assert (stored["runs"], stored["idempotency_keys"]) == (5, 5)
    assert (await api.post("/v1/jobs", json=jobs[4])).json()["job_id"] == again.json()["job_ids"][4]


async def test_the_same_key_twice_in_one_batch_is_one_job(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    job = {"task": "noop", "idempotency_key": "k"}
    ids = (await api.post(BATCH, json=[job, {"task": "noop"}, job])).json()["job_ids"]
    assert ids[0] == ids[2] != ids[1]
    assert (await rows(connection))["runs"] == 2


async def test_a_known_key_with_another_body_stops_the_batch(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await api.post("/v1/jobs", json={"task": "noop", "idempotency_key": "k1"})
    stored = await rows(connection)
    known = [{"task": "noop"}, {"task": "noop", "payload": {"a": 1}, "idempotency_key": "k1"}]
    within = [{"task": "noop", "idempotency_key": "k2"}, {"task": "noop", "payload": {}, "idempotency_key": "k2"}]
    for jobs in (known, within):
        refused = problem(await api.post(BATCH, json=jobs))
        assert (refused["status"], refused["code"]) == (409, "idempotency_key_reused")
        assert [(error["index"], error["field"]) for error in refused["errors"]] == [(1, "jobs[1].idempotency_key")]
    assert await rows(connection) == stored


async def test_an_id_twice_in_one_batch_or_taken_before_stops_the_batch(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await api.post("/v1/jobs", json={"job_id": "old", "task": "noop", "schedule": "@daily"})
    stored = await rows(connection)
    jobs = [{"job_id": job_id, "task": "noop"} for job_id in ("a", "b", "a", "old", "c")]
    refused = problem(await api.post(BATCH, json=jobs))
    assert (refused["status"], refused["code"]) == (409, "job_exists")
    assert [(error["index"], error["field"]) for error in refused["errors"]] == [
        (2, "jobs[2].job_id"),
        (3, "jobs[3].job_id"),
    ]
    assert await rows(connection) == stored
    assert (await api.post("/v1/jobs", json={"job_id": "a", "task": "noop"})).status_code == 201


async def test_batches_that_share_keys_and_ids_in_any_order_neither_deadlock_nor_double(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    jobs = [{"job_id": f"j{n}", "task": "noop", "idempotency_key": f"k{n}"} for n in range(40)]
    orders = [jobs, jobs[::-1], jobs[20:] + jobs[:20], jobs[::2] + jobs[1::2]] * 2
    answers = await asyncio.gather(*(api.post(BATCH, json=order) for order in orders))
    assert {answer.status_code for answer in answers} == {201}
    stored = await rows(connection)
    assert (stored["runs"], stored["taken_ids"], stored["idempotency_keys"]) == (40, 40, 40)


async def test_jobs_with_equal_schedules_fire_together_and_others_at_their_own_times(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    schedules: list[Any] = [
        {"cron": "30 4 * * *"}, {"cron": "30 4 * * *"}, {"cron": "30 4 * * *", "timezone": "Asia/Kolkata"},
        {"cron": "31 4 * * *"}, {"every": "7d", "anchor": "2099-01-01T00:00:00Z"}, {"at": "2099-01-01T00:00:00Z"},
    ]  # fmt: skip
    made = await api.post(BATCH, json=[{"task": "noop", "schedule": schedule} for schedule in schedules])
    assert made.status_code == 201
    found = await connection.fetch("select job_id, next_fire_at from mainspring.jobs")
    times = {row["job_id"]: row["next_fire_at"] for row in found}
    due = [times[job_id] for job_id in made.json()["job_ids"]]
    assert [(moment.hour, moment.minute) for moment in due] == [(4, 30), (4, 30), (23, 0), (4, 31), (0, 0), (0, 0)]
    assert due[0] == due[1] and due[5].year == 2099
