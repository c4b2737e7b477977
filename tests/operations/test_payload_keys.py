"""Declared keys of payloads: runs are found by their values, also when the payload was dropped."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.domain.payload_keys import found_values
from tests.api.bookkeeping import problem
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio


async def submit(api: httpx.AsyncClient, payload: Any, **fields: Any) -> str:
    answer = await api.post("/v1/jobs", json={"task": "noop", "payload": payload, **fields})
    assert answer.status_code == 201, answer.text
    job_id: str = answer.json()["job_id"]
    return job_id


async def found(api: httpx.AsyncClient, **wanted: Any) -> list[str]:
    answer = await api.get("/v1/runs", params=wanted)
    assert answer.status_code == 200, answer.text
    return sorted(run["job_id"] for run in answer.json()["runs"])


async def test_runs_are_found_by_declared_keys_while_they_live_and_after_their_end(api: httpx.AsyncClient) -> None:
    keys = {"search": ["account", "customer.id"], "keep_payload": False}
    one = await submit(api, {"account": 42, "customer": {"id": "a'b\"c\\"}}, **keys)
    other = await submit(api, {"account": 43}, **keys)
    await submit(api, {"account": 42})  # it declares no key
    for _ in range(2):
        assert await found(api, **{"payload.account": "42"}) == [one]
        assert await found(api, **{"payload.account": "43"}) == [other]
        assert await found(api, **{"payload.customer.id": "a'b\"c\\", "payload.account": "42"}) == [one]
        assert await found(api, **{"payload.customer.id": "x", "payload.account": "42"}) == []
        assert await found(api, **{"payload.nothing": "42"}) == []
        worker = HandWorker(api)
        reply = await worker.hello(free=10)
        if reply.runs:
            await worker.report(*map(outcome, reply.runs))
    assert (await api.get(f"/v1/jobs/{one}")).json()["search"] == ["account", "customer.id"]


async def test_labels_and_keys_together_page_by_page(api: httpx.AsyncClient) -> None:
    jobs = [await submit(api, {"a": 1}, search=["a"], labels={"team": "bi"}) for _ in range(3)]
    await submit(api, {"a": 1}, search=["a"])
    assert await found(api, **{"payload.a": "1", "label": "team:bi"}) == sorted(jobs)
    page = await api.get("/v1/runs", params={"payload.a": "1", "limit": 3})
    following = page.headers["link"].partition(">")[0].lstrip("<")
    assert len((await api.get(following)).json()["runs"]) == 1


async def test_a_fire_a_change_and_a_repeat_have_the_values_of_their_payload(api: httpx.AsyncClient) -> None:
    job = await submit(api, {"account": 1}, schedule="@daily", search=["account"], overlap="allow")
    await api.post(f"/v1/jobs/{job}:run-now", json={})
    await api.post(f"/v1/jobs/{job}:run-now", json={"payload": {"account": 2}})
    assert (await api.patch(f"/v1/jobs/{job}", json={"payload": {"account": 3}})).status_code == 200
    await api.post(f"/v1/jobs/{job}:run-now", json={})
    for account in (1, 2, 3):
        assert await found(api, **{"payload.account": account}) == [job]
    assert (await api.patch(f"/v1/jobs/{job}", json={"search": None})).json()["search"] == []
    await api.post(f"/v1/jobs/{job}:run-now", json={"payload": {"account": 4}})
    assert await found(api, **{"payload.account": "4"}) == []


async def test_a_verb_on_many_takes_keys_too(api: httpx.AsyncClient) -> None:
    job = await submit(api, {"account": 1}, search=["account"])
    await submit(api, {"account": 2}, search=["account"])
    body = {"verb": "cancel", "filter": {"payload": {"account": "1"}}, "dry_run": True}
    counted = (await api.post("/v1/runs:act", json=body)).json()
    assert (counted["count"], counted["examples"]) == (1, [job])
    refused = await api.post("/v1/runs:act", json={**body, "filter": {"payload": {"a..b": "1"}}})
    assert problem(refused)["field"].startswith("filter.")


async def test_bad_keys_are_refused_and_change_nothing(api: httpx.AsyncClient) -> None:
    for search, field in (
        ([f"k{number}" for number in range(9)], "search"), ([""], "search[0]"), (["a", "a"], "search[1]"),
        (["a..b"], "search[0]"), (["payload.a"], "search[0]"), (["x" * 201], "search[0]"), (["\x07"], "search[0]"),
    ):  # fmt: skip
        answer = await api.post("/v1/jobs", json={"task": "noop", "search": search})
        assert (problem(answer)["status"], problem(answer)["field"]) == (422, field)
    for bad in ("payload.", "payload.a..b", "payload"):
        assert problem(await api.get("/v1/runs", params={bad: "1"}))["status"] == 422
    assert problem(await api.get("/v1/runs?payload.a=1&payload.a=2"))["detail"] == "payload.a is given twice"
    many = {f"payload.k{number}": "1" for number in range(9)}
    assert problem(await api.get("/v1/runs", params=many))["status"] == 422
    assert problem(await api.get("/v1/jobs", params={"payload.a": "1"}))["status"] == 422


async def test_a_job_without_keys_stores_nothing_more(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    await submit(api, {"account": 42})
    assert await connection.fetchval("select spec from mainspring.runs") is None


def test_values_are_scalars_of_a_bounded_length() -> None:
    payload = {
        "text": "x", "number": 1.5, "whole": 42, "yes": True, "none": None, "list": [1], "object": {"a": 1},
        "long": "x" * 201, "deep": {"er": {"er": "y"}},
    }  # fmt: skip
    paths = [*payload, "deep.er.er", "text.none"]
    assert found_values(json.dumps(payload), paths) == {
        "text": "x", "number": "1.5", "whole": "42", "yes": "true", "deep.er.er": "y",
    }  # fmt: skip
    assert found_values(None, paths) is None
    assert found_values("[1]", paths) is None
