"""Unique jobs: a submission replaces the payload of the job that has its key, or pushes it to a later time."""

from __future__ import annotations

from datetime import datetime, timedelta

import asyncpg
import httpx
import pytest

from mainspring.roles.assembly import Assembly
from tests.api.bookkeeping import problem, rows
from tests.operations.firing import fire_due, let_backoff_pass, make_due
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.unique_jobs import body, count, created, sent, view
from tests.store.rows import now_of

pytestmark = pytest.mark.anyio


# -- replace


@pytest.mark.parametrize("place", ["queued", "held", "scheduled", "paused", "due"])
async def test_replace_puts_the_payload_into_a_job_that_has_not_started(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, place: str
) -> None:
    delay = {"delay": "1h"} if place in ("scheduled", "paused", "due") else {}
    first = await created(api, body({"account": 7, "n": 1}, timeout="5m", **delay))
    if place == "held":
        await connection.execute("update mainspring.runs set state = 4")
    if place == "paused":
        await api.post(f"/v1/jobs/{first}:pause")
    if place == "due":
        await make_due(connection, first)
    before = await view(api, first)
    replacing = body({"account": 7, "n": 2}, timeout="9m", delay="2h", **{"else": "replace"})
    assert await sent(api, replacing) == (200, first, "replaced")
    after = await view(api, first)
    assert after["payload"] == {"account": 7, "n": 2}
    assert (after["timeout"], after["unique"]) == (300.0, before["unique"])
    assert (after["next_fire_at"], after["status"]) == (before["next_fire_at"], before["status"])
    assert await count(connection) == 1
    if place == "due":
        assert await fire_due(assembly, connection) == 1
    if place in ("due", "queued"):
        order = (await HandWorker(api).claim())[0]
        assert b'"n":2' in bytes(order.payload).replace(b" ", b"")


async def test_replace_brings_the_command_and_the_http_call(api: httpx.AsyncClient) -> None:
    rule = {"unique": {"by": ["name"], "else": "replace"}, "name": "n"}
    first = await created(api, {"command": "echo 1", "env": {"A": "1"}, **rule})
    assert await sent(api, {"command": "echo 2", "env": {"A": "2"}, **rule}) == (200, first, "replaced")
    job = await view(api, first)
    assert (job["command"], job["env"]) == ("echo 2", {"A": "1"})
    rule["name"] = "m"
    first = await created(api, {"http": {"url": "https://a.example/"}, **rule})
    assert await sent(api, {"http": {"url": "https://b.example/"}, **rule}) == (200, first, "replaced")
    job = await view(api, first)
    assert job["http"]["url"] == "https://b.example/"


async def test_replace_of_a_job_that_has_started_is_a_conflict(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    first = await created(api, body())
    worker = HandWorker(api)
    order = (await worker.claim())[0]
    stored = await rows(connection)
    refused = problem(await api.post("/v1/jobs", json=body(**{"else": "replace"}, idempotency_key="k")))
    assert (refused["status"], refused["code"], refused["field"]) == (409, "unique_started", "unique")
    assert first in refused["detail"] and refused["hint"]
    assert await rows(connection) == stored
    await worker.report(outcome(order, "FAILED", error="no"))  # it backs off
    assert problem(await api.post("/v1/jobs", json=body(**{"else": "replace"})))["code"] == "unique_started"
    await let_backoff_pass(connection)
    await worker.report(outcome((await worker.claim())[0]))
    assert await created(api, body(**{"else": "replace"}, idempotency_key="k")) != first


async def test_a_running_job_that_was_to_be_replaced_has_no_key_and_the_next_one_is_created(
    api: httpx.AsyncClient,
) -> None:
    await created(api, body({"account": 7, "n": 1}, **{"else": "replace"}))
    await HandWorker(api).claim()
    second = await created(api, body({"account": 7, "n": 2}, **{"else": "replace"}))
    assert await sent(api, body({"account": 7, "n": 3}, **{"else": "replace"})) == (200, second, "replaced")


async def test_a_run_that_was_handed_back_unstarted_can_be_replaced(api: httpx.AsyncClient) -> None:
    first = await created(api, body())
    worker = HandWorker(api)
    await worker.report(outcome((await worker.claim())[0], "RETURNED", unstarted=True))
    assert await sent(api, body({"account": 7, "n": 2}, **{"else": "replace"})) == (200, first, "replaced")


async def test_replace_does_not_put_a_payload_into_a_job_of_another_task(api: httpx.AsyncClient) -> None:
    await created(api, body(by=["payload.account"]))
    refused = problem(
        await api.post("/v1/jobs", json=body(task="other", by=["payload.account"], **{"else": "replace"}))
    )
    assert (refused["status"], refused["code"]) == (409, "unique_other_task")
    assert '"task"' in refused["hint"]


@pytest.mark.parametrize("place", ["queued", "held", "scheduled", "batch"])
async def test_a_payload_that_needs_another_slot_does_not_replace(
    api: httpx.AsyncClient, connection: asyncpg.Connection, place: str
) -> None:
    limit = {"concurrency": {"limit": 1, "key": "payload.region"}}
    if place == "held":
        await created(api, {"task": "noop", "payload": {"region": "eu"}, **limit})
    delay = {"delay": "1h"} if place == "scheduled" else {}
    first = body({"account": 7, "region": "eu", "n": 1}, **limit, **delay)
    same = body({"account": 7, "region": "eu", "n": 2}, **{"else": "replace"})
    others = [body({"account": 7, "region": region}, **{"else": "replace"}) for region in ("us", None, [1])]
    if place == "batch":
        for other in others:
            refused = problem(await api.post("/v1/jobs:batch", json={"jobs": [first, other]}))
            assert (refused["status"], refused["code"]) == (409, "limited")
        [job_id, _] = (await api.post("/v1/jobs:batch", json={"jobs": [first, same]})).json()["job_ids"]
    else:
        job_id = await created(api, first)
        for other in others:
            refused = problem(await api.post("/v1/jobs", json=other))
            assert (refused["status"], refused["code"]) == (409, "limited")
        assert await sent(api, same) == (200, job_id, "replaced")
    assert (await view(api, job_id))["payload"] == {"account": 7, "region": "eu", "n": 2}
    later = await api.post("/v1/jobs", json=body(delay="2h", **{"else": "later"}))
    assert later.json().get("code") == (None if place == "scheduled" else "limited")


# -- later


async def test_later_pushes_the_time_and_keeps_the_payload(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    first = await created(api, body({"account": 7, "n": 1}, delay="1m", **{"else": "later"}))
    version = (await view(api, first))["version"]
    assert await sent(api, body({"account": 7, "n": 2}, delay="5m", **{"else": "later"})) == (200, first, "later")
    job = await view(api, first)
    left = datetime.fromisoformat(job["next_fire_at"]) - await now_of(connection)
    assert timedelta(minutes=4, seconds=30) < left <= timedelta(minutes=5)
    assert (job["schedule_time"], job["payload"]) == (job["next_fire_at"], {"account": 7, "n": 1})
    assert job["version"] == version + 1
    # Never to an earlier time.
    assert await sent(api, body(delay="1s", **{"else": "later"})) == (200, first, "later")
    assert await view(api, first) == job


async def test_later_pushes_at_most_to_the_end_of_the_window(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    first = await created(api, body(delay="1m", **{"else": "later", "for": "10m"}))
    assert (await sent(api, body(delay="1h", **{"else": "later", "for": "2h"})))[1:] == (first, "later")
    until = await connection.fetchval("select until from mainspring.unique_keys")
    assert datetime.fromisoformat((await view(api, first))["next_fire_at"]) == until


async def test_a_job_that_is_pushed_does_not_fire_at_its_old_time(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    first = await created(api, body(delay="1h", **{"else": "later"}))
    await make_due(connection, first)
    node = assembly.node
    assert node is not None
    await node.leaser.run_once(connection)
    await node.loader.run_once()  # it is in the wheel
    await sent(api, body(delay="1h", **{"else": "later"}))
    assert await node.firer.fire(node._wheel.advance(node._clock.timestamp() + 0.01)) == 0
    assert (await view(api, first))["status"] == "SCHEDULED"


async def test_later_pushes_a_paused_job_and_a_run_that_is_queued(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    paused = await created(api, body({"account": 1}, delay="1m", **{"else": "later"}))
    await api.post(f"/v1/jobs/{paused}:pause")
    await sent(api, body({"account": 1}, delay="1h", **{"else": "later"}))
    await api.post(f"/v1/jobs/{paused}:resume")
    left = datetime.fromisoformat((await view(api, paused))["next_fire_at"]) - await now_of(connection)
    assert timedelta(minutes=59) < left <= timedelta(hours=1)
    queued = await created(api, body({"account": 2}, delay="1m", expires_in="10m", **{"else": "later"}))
    await make_due(connection, queued)
    assert await fire_due(assembly, connection) == 1
    assert (await sent(api, body({"account": 2}, delay="1h", **{"else": "later"})))[1:] == (queued, "later")
    run = await connection.fetchrow(
        "select ready_at - clock_timestamp() as left, expires_at - ready_at as rest from mainspring.runs"
    )
    assert timedelta(minutes=59) < run["left"] <= timedelta(hours=1)
    assert run["rest"] == timedelta(minutes=10)
    reply = await HandWorker(api).ask(free=1, hello=HandWorker(api).card)
    assert reply.json().get("runs", []) == []
