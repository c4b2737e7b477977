"""FEATURES 1.4: no JSON body causes a 5xx, and a refused request stores nothing."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

import asyncpg
import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.api.bookkeeping import problem, rows

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json"}
few = settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)  # examples can share a database: each one counts rows before and after

texts = st.text(st.characters() | st.characters(categories=["Cs", "Cc"]), max_size=8)
lines = st.text(st.characters(categories=["L", "N", "P", "So"]), min_size=1, max_size=8)
numbers = st.integers() | st.integers(-2, 5) | st.floats(allow_nan=False, allow_infinity=False) | st.just(10**400)
scalars = st.none() | st.booleans() | numbers | texts
anything = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3))

words = lines | lines | texts
counts = st.integers(0, 20) | st.integers(0, 20) | numbers
durations = st.sampled_from(["90s", "15m", "1h30m", "0s", "-1s", "1e5s", "", 5, 0.5, "99999w"]) | numbers
times = st.datetimes().map(lambda moment: moment.isoformat() + "Z") | st.sampled_from(["2026-12-31", "soon"])
zones = st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe", "europe/berlin", "Mars/X"])
fields = st.sampled_from(["*", "*/5", "0", "59", "1-5", "L", "MON#2", "FEB", "30", "61", "H", "?"])
crons = st.lists(fields, min_size=4, max_size=7).map(" ".join) | st.sampled_from(["@daily", "0 0 30 2 *", "* * * * *"])
WHEN = {"at": times, "every": durations, "cron": crons, "timezone": zones, "anchor": times}
RETRY = {"max_attempts": counts, "backoff": st.sampled_from(["linear", "fibonacci", "quick"]), "base": durations,
         "cap": durations, "jitter": st.floats(0, 1) | numbers}  # fmt: skip
MISFIRE = {"policy": st.sampled_from(["skip", "once", "all", "x"]), "grace": durations, "cap": counts}


def some_of(known: dict[str, st.SearchStrategy[Any]], most: int) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with a few of these fields."""
    names = st.lists(st.sampled_from(sorted(known)), max_size=most, unique=True)
    return names.flatmap(lambda chosen: st.fixed_dictionaries({name: known[name] for name in chosen}))


CHANGES: dict[str, st.SearchStrategy[Any]] = {
    "name": words, "task": words, "job_type": words, "command": words | st.lists(words, max_size=3),
    "payload": st.dictionaries(texts, anything, max_size=3), "schedule": crons | some_of(WHEN, 2) | some_of(WHEN, 2),
    "schedule_type": st.sampled_from(["CRON", "future", "IMMEDIATE", "x"]), "schedule_time": times,
    "cron_expression": crons, "timezone": zones, "queue": words, "priority": st.sampled_from(["high", 3, "0", "x", 4]),
    "timeout": durations, "retry": some_of(RETRY, 3), "retries": counts, "max_retries": counts,
    "misfire": some_of(MISFIRE, 3), "overlap": st.sampled_from(["skip", "allow", "queue", "x"]),
    "delivery": st.sampled_from(["at_least_once", "at_most_once", "x"]), "owner": words, "description": texts,
    "labels": st.dictionaries(words, words, max_size=3), "notify": anything,
}  # fmt: skip
ids = st.sampled_from(["a", "b", "c", "d"]) | words
JOB = CHANGES | {"job_id": ids, "idempotency_key": ids}
# One valid or nearly valid field among valid ones; then any value in a known field; then any JSON.
plausible = some_of(JOB, 4).map(lambda body: {"name": "noop"} | body)
wild = st.dictionaries(st.sampled_from(sorted(JOB)) | texts, anything, max_size=4)
requests = plausible | plausible | plausible | wild | anything


@few
@given(body=requests)
async def test_any_json_is_a_job_or_a_refusal_that_leaves_no_row(
    api: httpx.AsyncClient, connection: asyncpg.Connection, body: Any
) -> None:
    before = await rows(connection)
    answer = await api.post("/v1/jobs", content=json.dumps(body), headers=JSON)
    if answer.status_code in (200, 201):
        shown = await api.get(f"/v1/jobs/{answer.json()['job_id']}")
        assert shown.status_code == 200
        return
    assert problem(answer)["status"] < 500
    # A conflict of ids or keys may still create a lane, because the request itself is valid.
    after = await rows(connection)
    if answer.status_code == 409:
        after["lanes"] = before["lanes"]
    assert after == before


@few
@given(body=st.lists(plausible, max_size=4) | st.lists(requests, max_size=4) | wild)
async def test_any_batch_is_all_or_nothing(api: httpx.AsyncClient, connection: asyncpg.Connection, body: Any) -> None:
    before = await rows(connection)
    answer = await api.post("/v1/jobs:batch", content=json.dumps(body), headers=JSON)
    if answer.status_code == 201:
        assert answer.json()["accepted"] == len(body)
        return
    assert answer.status_code < 500, answer.text
    after = await rows(connection)
    if answer.status_code == 409:
        after["lanes"] = before["lanes"]
    assert after == before


@few
@given(body=some_of(CHANGES, 3) | some_of(CHANGES, 3) | wild | anything)
async def test_any_change_is_made_or_refused_and_then_nothing_changed(
    api: httpx.AsyncClient, connection: asyncpg.Connection, body: Any
) -> None:
    await api.post("/v1/jobs", json={"job_id": "j", "task": "noop", "schedule": "@daily"})
    before = await connection.fetchrow("select * from mainspring.jobs")
    answer = await api.patch("/v1/jobs/j", content=json.dumps(body), headers=JSON)
    after = await connection.fetchrow("select * from mainspring.jobs")
    if answer.status_code == 200:
        if after != before:  # a one-time job whose time has passed may get the same again
            assert after["version"] == before["version"] + 1
        changed = answer.json()
        changed.pop("warnings", None)  # of this change
        assert (await api.get("/v1/jobs/j")).json() == changed
        return
    assert problem(answer)["status"] < 500
    assert after == before


@settings(few, max_examples=60)
@given(body=st.binary(max_size=60) | anything.map(lambda value: json.dumps(value).encode()))
async def test_any_bytes_at_the_exchange_are_refused_and_leave_no_row(
    api: httpx.AsyncClient, connection: asyncpg.Connection, body: bytes
) -> None:
    before = await rows(connection)
    answer = await api.post("/v1/exchange", content=body, headers=JSON)
    assert problem(answer)["status"] < 500
    assert await rows(connection) == before


# Routes that act on runs, dead letters, workers and logs.

RUN_ID = "0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11"
run_ids = st.just(RUN_ID) | st.uuids().map(str) | texts
payloads = st.dictionaries(texts, anything, max_size=3) | anything
CHOICE: dict[str, st.SearchStrategy[Any]] = {
    "job": words, "task": words, "queue": words, "error": words, "since": times, "until": times, "all": st.booleans(),
    "limit": counts, "payload": payloads,
}  # fmt: skip
choices = (
    some_of(CHOICE, 4) | some_of(CHOICE, 4) | st.dictionaries(st.sampled_from(sorted(CHOICE)), anything) | anything
)
CHUNK: dict[str, st.SearchStrategy[Any]] = {
    "run_id": run_ids, "fence": counts, "attempt": counts, "offset": counts,
    "data": st.binary(max_size=9).map(lambda data: base64.b64encode(data).decode()) | texts,
    "truncated": st.booleans(), "end": st.booleans(),
}  # fmt: skip
chunks = st.fixed_dictionaries(CHUNK) | some_of(CHUNK, 7)
PROGRESS: dict[str, st.SearchStrategy[Any]] = {
    "run_id": run_ids, "fence": counts, "fraction": st.floats(0, 1) | numbers, "message": texts,
}  # fmt: skip
SHARE: dict[str, st.SearchStrategy[Any]] = {
    "most": counts, "queue": words, "keep_for": st.lists(words, max_size=2)
}  # fmt: skip
HELLO: dict[str, st.SearchStrategy[Any]] = {
    "name": words, "queues": st.lists(words, max_size=2), "tasks": st.lists(words, max_size=2),
    "slots": st.integers(1, 5) | counts,
}  # fmt: skip
EXCHANGE: dict[str, st.SearchStrategy[Any]] = {
    "free": counts, "progress": st.lists(st.fixed_dictionaries(PROGRESS), max_size=2), "unstarted": counts,
    "shares": st.lists(st.fixed_dictionaries(SHARE), max_size=2), "room": st.dictionaries(words, counts),
    "hello": st.fixed_dictionaries(
        HELLO,
        optional={"signatures": st.dictionaries(words, anything, max_size=2), "labels": st.dictionaries(words, words)},
    ),
}  # fmt: skip
_NO_PATH = str.maketrans({"/": "", "?": "", "#": "", "%": ""})


async def answered(api: httpx.AsyncClient, url: str, body: Any) -> httpx.Response:
    """The response: a success, or a problem document with a status below 500."""
    answer = await api.post(url, content=json.dumps(body), headers=JSON)
    if not answer.is_success:
        assert problem(answer)["status"] < 500
    return answer


@few
@given(body=choices, verb=st.sampled_from(["replay", "discard"]))
async def test_any_choice_of_dead_letters_is_answered_for(
    api: httpx.AsyncClient, connection: asyncpg.Connection, body: Any, verb: str
) -> None:
    before = await rows(connection)
    await answered(api, f"/v1/dead-letters:{verb}", body)
    assert await rows(connection) == before, "there is none to choose"


@few
@given(
    body=some_of({"payload": payloads}, 1) | anything,
    url=st.sampled_from(["dead-letters/{}:replay", "dead-letters/{}:discard", "runs/{}:retry", "runs/{}:cancel"]),
    alive=st.booleans(),
)
async def test_any_body_of_a_verb_is_answered_for(
    api: httpx.AsyncClient, connection: asyncpg.Connection, body: Any, url: str, alive: bool
) -> None:
    task = "noop" if alive else "shell"
    job_id = (await api.post("/v1/jobs", json={"task": task, "payload": {"command": "true"}})).json()["job_id"]
    if not alive:
        await api.post(f"/v1/runs/{job_id}:cancel")
    before = await rows(connection)
    answer = await answered(api, "/v1/" + url.format(job_id), body)
    if not answer.is_success:
        assert await rows(connection) == before


@few
@given(worker=st.just(RUN_ID) | texts, items=st.lists(chunks, max_size=3), wild=anything)
async def test_any_shipment_of_output_is_answered_for(
    api: httpx.AsyncClient, connection: asyncpg.Connection, worker: str, items: Any, wild: Any
) -> None:
    before = await connection.fetchval("select count(*) from mainspring.run_logs")
    await answered(api, "/v1/exchange/logs", {"worker_id": worker, "chunks": items})
    await answered(api, "/v1/exchange/logs", wild)
    assert await connection.fetchval("select count(*) from mainspring.run_logs") == before


@few
@given(body=some_of(EXCHANGE, 4), seq=st.integers(1, 9) | counts)
async def test_any_exchange_is_answered_for(api: httpx.AsyncClient, body: dict[str, Any], seq: int) -> None:
    await answered(api, "/v1/exchange", {"worker_id": RUN_ID, "seq": seq} | body)


@few
@given(
    attempt=st.none() | counts.map(str) | texts,
    follow=st.none() | st.sampled_from(["true", "1", "no", ""]) | texts,
    mark=st.none() | st.sampled_from(["1:0", "99999:1", "0:999999999999999", "1:", ":", "-1:2"]),
)
async def test_any_way_to_ask_for_a_log_is_answered_for(
    api: httpx.AsyncClient, attempt: str | None, follow: str | None, mark: str | None
) -> None:
    job_id = (await api.post("/v1/jobs", json={"task": "noop"})).json()["job_id"]
    await api.post(f"/v1/runs/{job_id}:cancel")
    given = {"attempt": attempt, "follow": follow}
    params = {name: value.encode("utf-8", "replace") for name, value in given.items() if value is not None}
    headers = {} if mark is None else {"Last-Event-ID": mark}
    answer = await api.get(f"/v1/runs/{job_id}/logs", params=params, headers=headers)
    if not answer.is_success:
        assert problem(answer)["status"] < 500


@few
@given(name=texts)
async def test_any_name_of_a_run_a_letter_or_a_worker_is_answered_for(api: httpx.AsyncClient, name: str) -> None:
    some = name.encode("utf-8", "replace").decode().translate(_NO_PATH)
    for url in ("runs/{}", "runs/{}/timeline", "runs/{}/why", "runs/{}/logs", "dead-letters/{}", "workers/{}"):
        answer = await api.get(httpx.URL("/v1/" + url.format(quote(some, safe=""))))
        assert answer.status_code < 500, url
    for url in ("runs/{}:retry", "dead-letters/{}:replay", "dead-letters/{}:discard", "workers/{}:drain"):
        assert problem(await api.post("/v1/" + url.format(quote(some, safe=""))))["status"] == 404
