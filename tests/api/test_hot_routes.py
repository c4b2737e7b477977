"""The routes of every job and every exchange: a body of known length and one that comes in chunks are answered alike,
good or bad."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

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
    """The answers to a body of known length, and to one in chunks."""
    sent = {**JSON, **headers}
    return await api.post(path, content=body, headers=sent), await api.post(path, content=in_chunks(body), headers=sent)


def shape(answer: httpx.Response) -> tuple[Any, ...]:
    """What is compared: ids differ."""
    found = answer.json()
    problem = found if answer.status_code >= 400 else sorted(found)
    names = ("content-type", "retry-after", "www-authenticate")
    return answer.status_code, problem, [answer.headers.get(name) for name in names], "location" in answer.headers


@pytest.mark.parametrize("path", GOOD)
async def test_a_good_request_is_answered_alike(api: httpx.AsyncClient, path: str) -> None:
    known, chunked = await both_ways(api, path, body_of(path))
    assert known.status_code < 300, known.text
    assert shape(known) == shape(chunked)
    assert int(known.headers["content-length"]) == len(known.content)


@pytest.mark.parametrize("path", GOOD)
@pytest.mark.parametrize("body", BAD_BODIES)
async def test_a_bad_body_is_refused_alike(api: httpx.AsyncClient, path: str, body: bytes) -> None:
    known, chunked = await both_ways(api, path, body)
    assert known.status_code >= 400 and shape(known) == shape(chunked)


@pytest.mark.parametrize("path", GOOD)
@pytest.mark.parametrize("headers", BAD_HEADERS, ids=lambda headers: "-".join(headers.values())[:20])
async def test_a_request_that_is_not_admitted_is_refused_alike(
    api: httpx.AsyncClient, path: str, headers: dict[str, str]
) -> None:
    known, chunked = await both_ways(api, path, body_of(path), **headers)
    assert known.status_code >= 400 and shape(known) == shape(chunked)


@pytest.mark.parametrize("path", GOOD)
async def test_unknown_parameters_empty_bodies_and_other_methods_are_refused(api: httpx.AsyncClient, path: str) -> None:
    unknown = await api.post(path, content=body_of(path), headers=JSON, params={"wat": "1"})
    assert (unknown.status_code, unknown.json()["field"]) == (422, "wat")
    empty = await api.post(path, content=b"", headers=JSON)
    assert (empty.status_code, empty.json()["code"]) == (400, "invalid_json")
    assert (await api.options(path)).status_code == 204
    assert (await api.delete(path)).status_code == 405


@pytest.mark.parametrize("path", GOOD)
async def test_while_the_store_is_down_nothing_is_begun(assembly: Assembly, api: httpx.AsyncClient, path: str) -> None:
    assembly.store.outage.away = True
    known, chunked = await both_ways(api, path, body_of(path))
    assert (known.status_code, known.json()["code"]) == (503, "store_down") and shape(known) == shape(chunked)


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
