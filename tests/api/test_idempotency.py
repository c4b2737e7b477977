"""FEATURES 1.1: a request with a known idempotency key returns the same job and never creates another."""

from __future__ import annotations

import asyncio

import asyncpg
import httpx
import pytest

from tests.api.bookkeeping import problem, rows
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.servers import another_server

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json"}


async def test_a_repeat_with_the_same_body_answers_200_and_the_same_id(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    body = {"task": "noop", "payload": {"a": 1, "b": [1, 2]}, "idempotency_key": "k"}
    first = await api.post("/v1/jobs", json=body)
    stored = await rows(connection)
    again = await api.post("/v1/jobs", json=body)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["job_id"] == again.json()["job_id"]
    assert first.headers["location"] == again.headers["location"]
    assert await rows(connection) == stored


async def test_the_order_of_keys_and_the_spacing_do_not_matter(api: httpx.AsyncClient) -> None:
    texts = [
        '{"task": "noop", "payload": {"a": 1, "b": {"c": [1, 2], "d": "é"}}, "idempotency_key": "k", "priority": 2}',
        '{"priority":2,"idempotency_key":"k","payload":{"b":{"d":"\\u00e9","c":[1,2]},"a":1},"task":"noop"}',
        '\n{ "payload" : { "b" : { "d" : "é", "c" : [ 1 , 2 ] } , "a" : 1 } ,\t"task":"noop","idempotency_key":"k",'
        '"priority":2}\n',
    ]
    answers = [await api.post("/v1/jobs", content=text.encode(), headers=JSON) for text in texts]
    assert [answer.status_code for answer in answers] == [201, 200, 200]
    assert len({answer.json()["job_id"] for answer in answers}) == 1


async def test_another_body_under_the_same_key_is_refused_and_stores_nothing(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    body = {"task": "noop", "payload": {"a": [1, 2]}, "idempotency_key": "k"}
    assert (await api.post("/v1/jobs", json=body)).status_code == 201
    stored = await rows(connection)
    for other in (
        body | {"payload": {"a": [2, 1]}},
        body | {"payload": {"a": [1, 2], "b": None}},
        body | {"priority": "normal"},
        {"task": "noop", "idempotency_key": "k"},
    ):
        refused = problem(await api.post("/v1/jobs", json=other))
        assert (refused["status"], refused["code"]) == (409, "idempotency_key_reused")
        assert refused["field"] == "idempotency_key" and refused["hint"]
    assert await rows(connection) == stored


async def test_twenty_repeats_at_once_make_one_job(
    api: httpx.AsyncClient, connection: asyncpg.Connection, database_url: str
) -> None:
    body = {"task": "noop", "schedule": "@daily", "idempotency_key": "k"}
    async with another_server(database_url) as other:
        answers = await asyncio.gather(*((api, other)[n % 2].post("/v1/jobs", json=body) for n in range(20)))
    assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]
    assert len({answer.json()["job_id"] for answer in answers}) == 1
    stored = await rows(connection)
    assert (stored["jobs"], stored["idempotency_keys"]) == (1, 1)


async def test_two_bodies_at_once_under_one_key_make_one_job_and_the_other_is_refused(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    answers = await asyncio.gather(
        *(
            api.post("/v1/jobs", json={"task": "noop", "payload": {"n": n % 2}, "idempotency_key": "k"})
            for n in range(20)
        )
    )
    assert sorted(answer.status_code for answer in answers) == [200] * 9 + [201] + [409] * 10
    assert (await rows(connection))["runs"] == 1


async def test_a_repeat_finds_its_job_after_it_has_run(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    body = {"task": "noop", "idempotency_key": "k"}
    first = await api.post("/v1/jobs", json=body)
    worker = HandWorker(api)
    [order] = await worker.claim()
    await worker.report(outcome(order))
    again = await api.post("/v1/jobs", json=body)
    assert (again.status_code, again.json()["job_id"]) == (200, first.json()["job_id"])
    stored = await rows(connection)
    assert (stored["runs"], stored["run_history"]) == (0, 1)


async def test_a_key_goes_with_a_chosen_id(api: httpx.AsyncClient) -> None:
    body = {"job_id": "mine", "task": "noop", "schedule": "@daily", "idempotency_key": "k"}
    answers = await asyncio.gather(*(api.post("/v1/jobs", json=body) for _ in range(6)))
    assert sorted(answer.status_code for answer in answers) == [200] * 5 + [201]
    assert {answer.json()["job_id"] for answer in answers} == {"mine"}


async def test_a_key_is_not_spent_by_a_submission_that_is_refused(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await api.post("/v1/jobs", json={"job_id": "mine", "task": "noop"})
    refused = await api.post("/v1/jobs", json={"job_id": "mine", "task": "noop", "idempotency_key": "k"})
    assert refused.status_code == 409
    assert (await rows(connection))["idempotency_keys"] == 0
    assert (await api.post("/v1/jobs", json={"task": "noop", "idempotency_key": "k"})).status_code == 201


async def test_a_payload_with_a_number_that_no_machine_holds_has_a_key_like_any_other(api: httpx.AsyncClient) -> None:
    for key, number in enumerate(("1e400", "9" * 5000, "-" + "1" * 400)):
        text = f'{{"task": "noop", "payload": {{"n": {number}}}, "idempotency_key": "{key}"}}'
        answers = [await api.post("/v1/jobs", content=text, headers=JSON) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [201, 200]
        other = text.replace('"n"', '"m"')
        assert (await api.post("/v1/jobs", content=other, headers=JSON)).status_code == 409
