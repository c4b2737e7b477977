"""GET /v1/insights/overview: one look at the whole, and what is wrong."""

from __future__ import annotations

import re

import asyncpg
import httpx
import pytest

from mainspring.kernel.config import SHARD_COUNT
from mainspring.kernel.ids import uuid7
from mainspring.store import leases
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio


async def test_it_shows_what_waits_runs_and_ended_and_who_works(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    node = uuid7()
    await leases.node_seen(connection, node, "here")
    await leases.take(connection, node, list(range(SHARD_COUNT)), 60)
    await api.post("/v1/jobs:batch", json=[{"task": "noop", "max_retries": 0}] * 9)
    worker = HandWorker(api)
    orders = await worker.claim(4)
    await worker.report(outcome(orders[0]), outcome(orders[1]), outcome(orders[2], "FAILED", error="x"))
    shown = (await api.get("/v1/insights/overview")).json()
    assert (shown["status"], shown["problems"]) == ("ok", [])
    assert (shown["waiting"], shown["busy"], shown["slots"], shown["workers"]) == (5, 1, 100, {"LIVE": 1})
    assert (shown["rate"], shown["succeeded"], shown["failed"]) == (0.05, 2, 1)
    assert (shown["dead_letters"], shown["schedulers"], shown["shards_held"]) == (1, 1, SHARD_COUNT)
    assert shown["fire_lag"] == 0 and shown["oldest_seconds"] >= 0
    assert [queue["name"] for queue in shown["queues"]] == ["default"]


async def test_it_says_what_is_wrong_in_sentences(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    await api.post("/v1/jobs:batch", json=[{"task": "noop"}] * 3)
    await api.post("/v1/jobs", json={"task": "noop", "schedule": {"every": "1h"}})
    await connection.execute(
        """update mainspring.jobs
           set next_fire_at = clock_timestamp() - interval '2 minutes', created_at = created_at - interval '1 day'"""
    )
    shown = (await api.get("/v1/insights/overview")).json()
    assert shown["status"] == "degraded"
    first, second, third = shown["problems"]
    assert first == "no scheduler is live, so nothing fires; start a server or a scheduler"
    assert re.fullmatch(r"a job is due since [2-9]m([0-9]+s)? and has not fired", second)
    assert third == "3 runs wait and no worker is live; start one with: mainspring worker"
    await HandWorker(api, queues=["other"]).hello()
    assert (await api.get("/v1/insights/overview")).json()["problems"][2] == (
        "3 runs wait in the queue default, and no worker takes runs from it"
    )
