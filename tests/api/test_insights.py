"""The overview over time, failures by error, and the series of a job, as the history has them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.kernel.clock import SystemClock
from mainspring.kernel.config import SHARD_COUNT
from mainspring.kernel.ids import uuid7
from mainspring.roles.assembly import Assembly
from mainspring.store import leases, rollups
from mainspring.store.pool import Store
from mainspring.upkeep.gauge_sampler import GaugeSampler
from mainspring.upkeep.rollup_keeper import RollupKeeper
from tests.eventually import PATIENCE
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio


async def folded(store: Store, connection: asyncpg.Connection) -> None:
    """Return when all that has ended is in the rollups."""
    keeper, until = RollupKeeper(store, SystemClock()), await connection.fetchval("select clock_timestamp()")
    async with asyncio.timeout(PATIENCE):
        while (await rollups.watermark(connection) or until) <= until:
            if await keeper.roll_up() is None:
                await asyncio.sleep(0.05)


async def seen(api: httpx.AsyncClient, path: str) -> Any:
    answer = await api.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def some_runs(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    """Ten runs: five succeed, three fail for good, one is tried again later, and one waits."""
    await leases.take(connection, node := uuid7(), list(range(SHARD_COUNT)), 60)
    await leases.node_seen(connection, node, "here")
    await api.post("/v1/jobs", json={"job_id": "nightly", "task": "noop", "schedule": "manual", "max_retries": 0})
    await api.post("/v1/jobs/nightly:runNow", json={})
    await api.post("/v1/jobs:batch", json=[{"task": "noop", "queue": "mail", "max_retries": 0}] * 7)
    await api.post("/v1/jobs", json={"task": "noop", "max_retries": 1})
    worker = HandWorker(api, queues=["default", "mail"])
    orders = {order.run_id: order for order in await worker.claim(9)}
    mail = [order for order in orders.values() if order.queue == "mail"]
    others = [order for order in orders.values() if order.queue != "mail"]
    [own] = [order for order in others if order.job_id == "nightly"]
    [twice] = [order for order in others if order.job_id != "nightly"]
    await worker.report(*(outcome(order, ran_ms=40.0) for order in mail[:5]))
    await worker.report(
        outcome(mail[5], "FAILED", error="ValueError: account 17 of '/srv/a' is empty\nat line 3"),
        outcome(mail[6], "FAILED", error="ValueError: account 18 of '/srv/b' is empty\nat line 3"),
        outcome(own, "FAILED", error="KeyError: 'x'"), outcome(twice, "FAILED", error="TimeoutError: 3 s"),
    )  # fmt: skip
    await api.post("/v1/jobs", json={"task": "noop"})


async def test_what_ended_is_in_the_totals_and_the_series_of_every_window(
    api: httpx.AsyncClient, connection: asyncpg.Connection, store: Store
) -> None:
    await some_runs(api, connection)
    await GaugeSampler(store, SystemClock()).run_once()
    await folded(store, connection)
    for w, points in (("1h", 60), ("6h", 360), ("24h", 288), ("7d", 168), ("30d", 360)):
        shown = await seen(api, f"/v1/insights/overview?w={w}")
        window, totals = shown["window"], shown["window"]["totals"]
        assert (totals["ended"], totals["succeeded"], totals["failed"], totals["retried"]) == (8, 5, 3, 1), w
        assert totals["success_rate"] == 0.625 and 0.038 <= totals["duration_p50"] <= 0.042
        assert totals["lag_p99"] is not None and window["previous"]["ended"] == 0
        assert {len(values) for values in window["series"].values()} == {points}
        assert sum(window["series"]["succeeded"]) == 5 and sum(window["series"]["retried"]) == 1
        assert max(filter(None, window["series"]["waiting"])) == 1
        at = [datetime.fromisoformat(each) for each in window["series"]["at"]]
        assert at[1] - at[0] == timedelta(seconds=window["step_s"]) and at[-1] <= datetime.fromisoformat(window["to"])
    mail = (await seen(api, "/v1/insights/overview?w=1h&queue=mail"))["window"]["totals"]
    assert (mail["ended"], mail["failed"]) == (7, 2)
    for query in ("task=noop", "task=noop&queue=mail"):
        assert (await seen(api, f"/v1/insights/overview?w=24h&{query}"))["window"]["totals"]["succeeded"] == 5
    assert (await seen(api, "/v1/insights/overview?w=24h&task=nobody"))["window"]["totals"]["ended"] == 0
    assert (shown["nodes"][0]["host"], shown["nodes"][0]["shards"]) == ("here", SHARD_COUNT)
    assert shown["verdict"]["level"] == "ok"  # too few runs to judge
    refused = await api.get("/v1/insights/overview?w=2h")
    assert (refused.status_code, refused.json()["field"]) == (422, "w")


async def test_the_verdict_says_what_is_wrong_and_since_when(
    api: httpx.AsyncClient, connection: asyncpg.Connection, store: Store
) -> None:
    await leases.take(connection, node := uuid7(), list(range(SHARD_COUNT)), 60)
    await leases.node_seen(connection, node, "here")
    shown = (await seen(api, "/v1/insights/overview"))["verdict"]
    assert (shown["level"], shown["text"]) == ("ok", "All is well. No run ended in the last hour.")
    await api.post("/v1/jobs:batch", json=[{"task": "noop", "max_retries": 0}] * 25)
    worker = HandWorker(api)
    orders = await worker.claim(24)
    await worker.report(
        *(outcome(order, "FAILED" if n < 6 else "SUCCESS", error="x") for n, order in enumerate(orders))
    )
    await folded(store, connection)
    shown = (await seen(api, "/v1/insights/overview"))["verdict"]
    assert (shown["level"], shown["text"]) == ("warning", "25 % of the runs of the last 15 minutes failed (6).")
    assert datetime.now(UTC) - datetime.fromisoformat(shown["since"]) < timedelta(minutes=10)
    await connection.execute("delete from mainspring.rollups")
    await connection.execute("update mainspring.runs set ready_at = ready_at - interval '5 minutes'")
    shown = (await seen(api, "/v1/insights/overview"))["verdict"]
    assert shown["level"] == "warning"
    assert shown["text"].startswith("The queue default falls behind: its oldest run waits for 5m")


async def test_failures_are_grouped_by_error_with_what_they_hit(
    api: httpx.AsyncClient, connection: asyncpg.Connection, store: Store
) -> None:
    await some_runs(api, connection)
    await folded(store, connection)
    shown = await seen(api, "/v1/insights/failures")
    groups = {group["title"]: group for group in shown["groups"]}
    assert set(groups) == {"ValueError: account # of '…' is empty", "KeyError: '…'", "TimeoutError: # s"}
    largest = shown["groups"][0]
    assert (largest["count"], largest["failed"], sum(largest["series"])) == (2, 2, 2)
    assert (largest["tasks"], largest["queues"], largest["jobs"]) == (["noop"], ["mail"], 0)
    assert (groups["KeyError: '…'"]["job_ids"], groups["TimeoutError: # s"]["failed"]) == (["nightly"], 0)
    assert len(largest["series"]) == len(shown["at"]) <= 360
    run = await seen(api, f"/v1/runs/{largest['sample_run']}")
    assert run["status"] == "FAILED"
    assert [group["queues"] for group in (await seen(api, "/v1/insights/failures?queue=mail"))["groups"]] == [["mail"]]
    assert (await seen(api, "/v1/insights/failures?task=nobody"))["groups"] == []
    of_job = await seen(api, "/v1/insights/failures?job=nightly")
    assert [(group["title"], group["count"]) for group in of_job["groups"]] == [("KeyError: '…'", 1)]
    assert of_job["groups"][0]["fingerprint"] == groups["KeyError: '…'"]["fingerprint"]
    assert (await seen(api, "/v1/insights/failures?job=nobody"))["groups"] == []
    one = await seen(api, f"/v1/insights/failures/{largest['fingerprint']}")
    assert {**one["group"], "series": []} == {**largest, "series": []}
    assert (sum(one["group"]["series"]), len(one["at"])) == (2, len(one["group"]["series"]))
    unknown = await api.get("/v1/insights/failures/0123456789abcdef")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")
    for since in ("2999-01-01T00:00:00Z", "soon"):
        refused = await api.get(f"/v1/insights/failures/{largest['fingerprint']}?since={since}")
        assert (refused.status_code, refused.json()["field"]) == (422, "since")
        refused = await api.get(f"/v1/insights/failures?since={since}")
        assert (refused.status_code, refused.json()["field"]) == (422, "since")


async def test_the_series_of_a_job_has_its_newest_runs_and_those_of_the_window(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await some_runs(api, connection)
    shown = await seen(api, "/v1/jobs/nightly/series?w=7d")
    assert [(run["status"], run["duration"] is None) for run in shown["runs"]] == [("FAILED", False)]
    assert (shown["totals"]["failed"], sum(shown["failed"]), len(shown["at"])) == (1, 1, 168)
    assert shown["searched_to"] is None
    own = await connection.fetchval(
        "select run_id from mainspring.run_history where job_id is null and state = 10 limit 1"
    )
    assert [run["status"] for run in (await seen(api, f"/v1/jobs/{own}/series"))["runs"]] == ["SUCCESS"]
    assert (await api.get("/v1/jobs/nobody/series")).status_code == 404
    assert (await api.get("/v1/jobs/nightly/series?w=1y")).json()["field"] == "w"


async def test_very_many_runs_are_not_counted_for_a_request(
    assembly: Assembly, api: httpx.AsyncClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sample has the same numbers, and `taken_at` says how old they are."""
    await api.post("/v1/jobs:batch", json=[{"task": "noop"}] * 5)
    live = await seen(api, "/v1/queues")
    await GaugeSampler(store, SystemClock()).run_once()
    monkeypatch.setattr(assembly.services.queue_reader, "_many", 4)
    await api.post("/v1/jobs", json={"task": "noop"})
    sampled = await seen(api, "/v1/queues")
    assert "taken_at" not in live and sampled["taken_at"]
    same = ("depth", "scheduled", "held", "running")
    assert [[queue[name] for name in same] for queue in sampled["queues"]] == [
        [queue[name] for name in same] for queue in live["queues"]
    ]
    assert (await seen(api, "/v1/insights/overview"))["taken_at"] == sampled["taken_at"]


async def test_the_metrics_have_outcomes_and_histograms_by_task_and_queue(
    api: httpx.AsyncClient, connection: asyncpg.Connection, store: Store
) -> None:
    await some_runs(api, connection)
    await folded(store, connection)
    text = (await api.get("/metrics")).text
    assert 'mainspring_task_runs_total{outcome="succeeded",queue="mail",task="noop"} 5.0' in text
    assert 'mainspring_task_runs_total{outcome="failed",queue="default",task="noop"} 1.0' in text
    assert 'mainspring_task_retries_total{queue="default",task="noop"} 1.0' in text
    assert 'mainspring_task_duration_seconds_bucket{le="0.064",queue="mail",task="noop"} 7.0' in text
    assert 'mainspring_task_duration_seconds_count{queue="mail",task="noop"} 7.0' in text
    assert 'mainspring_task_start_lag_seconds_count{queue="mail",task="noop"} 7.0' in text
