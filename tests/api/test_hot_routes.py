"""The routes that are answered in front of the framework. A body of unknown length goes to the framework, so that each
request can be sent both ways: the answers are alike."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from mainspring.api.app import HOT
from mainspring.kernel.ids import uuid7
from mainspring.roles.assembly import Assembly
from tests.eventually import PATIENCE
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json"}
GOOD: dict[str, Any] = {
    "/v1/jobs": b'{"task":"noop","payload":{"n":1}}',
    "/v1/jobs:batch": b'[{"task":"noop"},{"task":"other"}]',
    "/v1/exchange": b'{"worker_id":"%s","seq":1,"hello":{"name":"n","queues":["q"],"tasks":["t"],"slots":1}}',
    "/v1/exchange/logs": b'{"worker_id":"%s","chunks":[]}',
}
BAD_BODIES = [b"{", b"[", b"null", b"7", b'"text"', b'{"unknown":1}', b"\xff", b'{"task":""}', b'{"worker_id":"x"}']
BAD_HEADERS: list[dict[str, str]] = [
    {"Authorization": ""}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic eDp5"}, {"Host": "elsewhere"},
    {"Origin": "http://evil.example"}, {"Content-Type": "text/plain"}, {"Mainspring-Worker-Secret": "x" * 200},
]  # fmt: skip


def body_of(path: str) -> bytes:
    body: bytes = GOOD[path]
    return body % str(uuid7()).encode() if b"%s" in body else body


async def in_chunks(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def both_ways(
    api: httpx.AsyncClient, path: str, body: bytes, **headers: str
) -> tuple[httpx.Response, httpx.Response]:
    """The answers of the hot route and of the framework."""
    sent = {**JSON, **headers}
    return await api.post(path, content=body, headers=sent), await api.post(path, content=in_chunks(body), headers=sent)


def shape(answer: httpx.Response) -> tuple[Any, ...]:
    """What is compared: ids differ."""
    found = answer.json()
    problem = found if answer.status_code >= 400 else sorted(found)
    names = ("content-type", "retry-after", "www-authenticate")
    return answer.status_code, problem, [answer.headers.get(name) for name in names], "location" in answer.headers


def test_these_routes_are_hot() -> None:
    assert set(HOT) == set(GOOD)


@pytest.mark.parametrize("path", HOT)
async def test_a_good_request_is_answered_alike(api: httpx.AsyncClient, path: str) -> None:
    hot, other = await both_ways(api, path, body_of(path))
    assert hot.status_code < 300, hot.text
    assert shape(hot) == shape(other)
    assert int(hot.headers["content-length"]) == len(hot.content)


@pytest.mark.parametrize("path", HOT)
@pytest.mark.parametrize("body", BAD_BODIES)
async def test_a_bad_body_is_refused_alike(api: httpx.AsyncClient, path: str, body: bytes) -> None:
    hot, other = await both_ways(api, path, body)
    assert hot.status_code >= 400 and shape(hot) == shape(other)


@pytest.mark.parametrize("path", HOT)
@pytest.mark.parametrize("headers", BAD_HEADERS, ids=lambda headers: "-".join(headers.values())[:20])
async def test_a_request_that_is_not_admitted_is_refused_alike(
    api: httpx.AsyncClient, path: str, headers: dict[str, str]
) -> None:
    hot, other = await both_ways(api, path, body_of(path), **headers)
    assert hot.status_code >= 400 and shape(hot) == shape(other)


@pytest.mark.parametrize("path", HOT)
async def test_parameters_empty_bodies_and_other_methods_are_the_frameworks(api: httpx.AsyncClient, path: str) -> None:
    unknown = await api.post(path, content=body_of(path), headers=JSON, params={"wat": "1"})
    assert (unknown.status_code, unknown.json()["field"]) == (422, "wat")
    empty = await api.post(path, content=b"", headers=JSON)
    assert (empty.status_code, empty.json()["code"]) == (400, "invalid_json")
    assert (await api.options(path)).status_code == 204
    assert (await api.delete(path)).status_code == 405


@pytest.mark.parametrize("path", HOT)
async def test_while_the_store_is_down_nothing_is_begun(assembly: Assembly, api: httpx.AsyncClient, path: str) -> None:
    assembly.store.outage.away = True
    hot, other = await both_ways(api, path, body_of(path))
    assert (hot.status_code, hot.json()["code"]) == (503, "store_down") and shape(hot) == shape(other)


async def test_a_long_poll_ends_when_the_store_goes_down(assembly: Assembly, api: httpx.AsyncClient) -> None:
    worker = HandWorker(api)
    await worker.hello()
    polling = asyncio.create_task(worker.ask(free=1, wait_ms=10_000))
    async with asyncio.timeout(PATIENCE):
        while not assembly.long_polls.wanted_lanes() and not len(assembly.long_polls):
            await asyncio.sleep(0)
    assembly.app.state.open_requests._end_all()
    answer = await polling
    assert (answer.status_code, answer.json()["code"]) == (503, "store_down")


async def test_a_value_that_cannot_be_stored_is_named_alike(api: httpx.AsyncClient) -> None:
    await api.post("/v1/jobs", json={"task": "noop"})
    worker = HandWorker(api)
    [order] = await worker.claim(1)
    bad = outcome(order)
    bad.fence = 2**40
    answer = await worker.ask(outcomes=[bad])
    assert (answer.status_code, answer.json()["code"]) == (422, "unstorable_value")
