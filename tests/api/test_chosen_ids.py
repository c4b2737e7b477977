"""FEATURES 1.1: a job_id that a client chooses is used for one live job of its tenant. See test_generations.py."""

from __future__ import annotations

import asyncio

import asyncpg
import httpx
import pytest

from tests.api.bookkeeping import problem, rows
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio


async def test_letters_digits_dots_underscores_and_hyphens_are_fine(api: httpx.AsyncClient) -> None:
    for job_id in ("a", "A.b_c-9", "x" * 200, "9", "..."):
        made = await api.post("/v1/jobs", json={"job_id": job_id, "task": "noop", "schedule": "manual"})
        assert (made.status_code, made.json()["job_id"]) == (201, job_id)


async def test_another_character_is_refused_in_words(api: httpx.AsyncClient) -> None:
    refused = problem(await api.post("/v1/jobs", json={"job_id": "a b/c", "task": "noop"}))
    assert (refused["status"], refused["field"]) == (422, "job_id")
    assert refused["expected"] == "letters, digits, dots, underscores and hyphens"


async def test_a_comment_in_json_is_answered_with_what_json_does_not_have(api: httpx.AsyncClient) -> None:
    body = '{"task": "noop", // the task\n "job_id": "a"}'
    refused = problem(await api.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"}))
    assert (refused["status"], refused["code"]) == (400, "invalid_json")
    assert refused["hint"] == "JSON has no comments, no trailing commas and no single quotes"


@pytest.mark.parametrize("job_id", [".", ".."])
async def test_ids_that_clients_remove_from_urls_are_refused(
    api: httpx.AsyncClient, connection: asyncpg.Connection, job_id: str
) -> None:
    stored = await rows(connection)
    body = {"job_id": job_id, "task": "noop", "schedule": "manual"}
    refused = problem(await api.post("/v1/jobs", json=body))
    assert (refused["status"], refused["code"], refused["field"]) == (422, "invalid_input", "job_id")
    assert "URL" in refused["detail"]
    refused = problem(await api.post("/v1/jobs:batch", json=[body]))
    assert (refused["status"], refused["code"]) == (422, "invalid_batch")
    assert "URL" in str(refused)
    assert await rows(connection) == stored


async def test_a_second_create_answers_409_whatever_it_asks_for(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    assert (await api.post("/v1/jobs", json={"job_id": "mine", "task": "noop", "schedule": "@daily"})).is_success
    stored = await rows(connection)
    for body in ({"schedule": "@daily"}, {"schedule": "now"}, {"schedule": {"at": "2099-01-01T00:00:00Z"}}):
        refused = problem(await api.post("/v1/jobs", json={"job_id": "mine", "task": "noop", **body}))
        assert (refused["status"], refused["code"], refused["field"]) == (409, "job_exists", "job_id")
        assert refused["hint"]
    assert await rows(connection) == stored


@pytest.mark.parametrize("schedule", ["now", "@daily"])
async def test_of_many_creates_of_one_id_at_once_exactly_one_succeeds(
    api: httpx.AsyncClient, connection: asyncpg.Connection, schedule: str
) -> None:
    answers = await asyncio.gather(
        *(api.post("/v1/jobs", json={"job_id": "mine", "task": f"t{n}", "schedule": schedule}) for n in range(20))
    )
    assert sorted(answer.status_code for answer in answers) == [201] + [409] * 19
    stored = await rows(connection)
    assert stored["jobs"] + stored["runs"] == 1


async def test_an_id_of_ours_cannot_be_chosen_for_another_job(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    """A client that posts the job_id that GET returned asks for a job that exists."""
    ours = [
        (await api.post("/v1/jobs", json={"task": "noop", "schedule": schedule})).json()["job_id"]
        for schedule in ("@daily", {"at": "2099-01-01T00:00:00Z"}, "now")
    ]
    worker = HandWorker(api, tasks=["ended"])
    ours.append((await api.post("/v1/jobs", json={"task": "ended"})).json()["job_id"])
    await worker.report(outcome((await worker.claim())[0]))
    stored = await rows(connection)
    for job_id in ours:
        for schedule in ("@daily", "now"):
            refused = await api.post("/v1/jobs", json={"job_id": job_id, "task": "noop", "schedule": schedule})
            assert (refused.status_code, refused.json()["code"]) == (409, "job_exists")
    assert await rows(connection) == stored


async def test_a_uuid_that_a_client_made_is_an_id_like_any_other(api: httpx.AsyncClient) -> None:
    for job_id in ("0190a1b2-0000-7000-8000-000000000001", "b9a1e7f4-1c2d-4e5f-8a9b-0c1d2e3f4a5b"):
        assert (await api.post("/v1/jobs", json={"job_id": job_id, "task": "noop"})).status_code == 201
        shown = (await api.get(f"/v1/jobs/{job_id}")).json()
        assert (shown["job_id"], shown["name"]) == (job_id, job_id)
        [run] = (await api.get(f"/v1/jobs/{job_id}/runs")).json()
        assert run["job_id"] == job_id and run["run_id"] != job_id
        assert (await api.delete(f"/v1/jobs/{job_id}")).json()["status"] == "CANCELLED"
