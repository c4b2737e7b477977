"""FEATURES 1.4: any invalid body gets a problem document and stores nothing."""

from __future__ import annotations

import json

import asyncpg
import httpx
import pytest

from tests.api.bad_bodies import (
    BATCHES,
    KIB_256,
    MEANING,
    NESTED,
    NOT_JSON,
    STRANGE,
    UNKNOWN,
    WRONG_TYPES,
    Case,
)
from tests.api.bookkeeping import problem, rows

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json"}
JOBS, BATCH = "/v1/jobs", "/v1/jobs:batch"


async def check(
    api: httpx.AsyncClient, connection: asyncpg.Connection, cases: list[Case], url: str, method: str = "POST"
) -> None:
    """Every case gets the expected error, and no table changes."""
    before = await rows(connection)
    wrong: list[object] = []
    for body, status, code, field, hint in cases:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        document = problem(await api.request(method, url, content=content, headers=JSON))
        found = (document["status"], document["code"], document.get("field"))
        if found != (status, code, field) or (hint is not None and hint not in document.get("hint", "")):
            wrong.append((content[:80], (status, code, field, hint), document))
        if await rows(connection) != before:
            wrong.append((content[:80], "left a row", document))
            before = await rows(connection)
    assert not wrong, "\n".join(map(str, wrong))


async def test_a_bad_job_is_refused(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    await check(api, connection, NOT_JSON + UNKNOWN + WRONG_TYPES + NESTED + MEANING + STRANGE, JOBS)


async def test_a_bad_batch_is_refused(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    await check(api, connection, BATCHES, BATCH)


async def test_a_bad_change_is_refused_and_the_job_is_as_it_was(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    job_id = (await api.post(JOBS, json={"task": "noop", "schedule": "@daily"})).json()["job_id"]
    before = await connection.fetchrow("select * from mainspring.jobs")
    cases = [case for case in UNKNOWN + NESTED + STRANGE if case[1] != 413]
    cases += [case for case in NOT_JSON if case[0] not in (b"", b"  \n")]
    cases += [({field: ["x"]}, 422, "unknown_job", field, None) for field in ("depends_on", "dependencies")]
    cases += [({"notify": [{"on": ["failure"], "to": ["x"]}]}, 422, "unknown_channel", "notify[0].to", None)]
    cases += [
        ({}, 422, "invalid_input", "$", "priority"),
        ({"job_id": "other"}, 422, "unknown_field", "job_id", None),
        ({"idempotency_key": "k"}, 422, "unknown_field", "idempotency_key", None),
        ({"retry_policy": {}, "retry": {}}, 422, "invalid_input", "retry_policy", None),
        ({"delay": "-1s"}, 422, "invalid_duration", "delay", None),
        ({"schedule": "0 0 30 2 *"}, 422, "cron_never_fires", "schedule", None),
        ({"task": None}, 422, "invalid_input", "task", None),
        ({"command": ""}, 422, "invalid_input", "command", None),
        ({"payload": [1]}, 422, "invalid_input", "payload", None),
        ({"payload": {"a": "x" * KIB_256}}, 413, "payload_too_large", "payload", None),
    ]
    for method in ("PATCH", "PUT"):
        await check(api, connection, cases, f"/v1/jobs/{job_id}", method)
    assert await connection.fetchrow("select * from mainspring.jobs") == before


async def test_a_body_that_is_not_json_by_its_own_word_is_415(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    """This also refuses forms, which any web page can send."""
    job_id = (await api.post(JOBS, json={"task": "noop", "schedule": "@daily"})).json()["job_id"]
    before = await rows(connection)
    kinds = (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/xml",
        "json",
    )
    for kind in (*kinds, "application/jsonp", None):
        headers = {} if kind is None else {"Content-Type": kind}
        for method, url in (
            ("POST", JOBS), ("POST", "/jobs"), ("POST", BATCH), ("POST", "/v1/exchange"),
            ("PATCH", f"/v1/jobs/{job_id}"), ("PUT", f"/v1/jobs/{job_id}"), ("POST", f"/v1/jobs/{job_id}:pause"),
        ):  # fmt: skip
            refused = problem(await api.request(method, url, content=b'{"task": "noop"}', headers=headers))
            assert (refused["status"], refused["code"]) == (415, "unsupported_media_type")
            assert (refused["field"], refused["expected"]) == ("Content-Type", "application/json")
    assert await rows(connection) == before
    for kind in (
        "application/json",
        "application/json; charset=utf-8",
        "APPLICATION/JSON",
        "application/merge-patch+json",
    ):
        headers = {"Content-Type": kind}
        assert (await api.post(JOBS, content=b'{"task": "noop"}', headers=headers)).status_code == 201


async def test_what_is_just_within_the_limits_is_taken(api: httpx.AsyncClient) -> None:
    largest = '{"task": "noop", "payload": {"a":"' + "x" * (KIB_256 - 8) + '"}}'
    deep = '{"task": "noop", "payload": {"a": ' + "[" * 500 + "]" * 500 + "}}"
    odd = r'{"task": "noop", "payload": {"a": "\u0000\ud83d\ude00", "b": 1e999, "c": ' + "9" * 4000 + "}}"
    plain = '{"task": "tâsk 👩‍💻", "name": "naïve", "queue": "q/1 2", "labels": {"ä": "ö"}, "owner": "Zoë"}'
    for text in (largest, deep, odd, plain):
        made = await api.post(JOBS, content=text.encode(), headers=JSON)
        assert made.status_code == 201, made.text
        shown = await api.get(f"/v1/jobs/{made.json()['job_id']}")
        assert shown.status_code == 200
    assert shown.json()["task"] == "tâsk 👩‍💻" and shown.json()["labels"] == {"ä": "ö"}


async def test_a_number_that_the_database_cannot_hold_is_the_senders_fault_and_no_outage(
    api: httpx.AsyncClient,
) -> None:
    run_id = "0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11"
    chunk = {"run_id": run_id, "fence": 2**40, "attempt": 1, "offset": 0, "data": ""}
    for code, url, body in (
        ("invalid_input", "/v1/exchange/logs", {"worker_id": run_id, "chunks": [chunk]}),
        ("unstorable_value", "/v1/exchange",
         {"worker_id": run_id, "seq": 2**62, "outcomes": [{"run_id": run_id, "fence": 2**40}],
          "hello": {"name": "w", "queues": ["q"], "tasks": ["t"], "slots": 1}}),
    ):  # fmt: skip
        refused = problem(await api.post(url, json=body))
        assert (refused["status"], refused["code"]) == (422, code), refused
