"""FEATURES 7.3: a tenant cannot see anything of another tenant, by any kind of id."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.roles.assembly import Assembly
from tests.api.bookkeeping import problem
from tests.logs.scene import chunk, ship
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.tenants import Tenants, several_tenants

pytestmark = pytest.mark.anyio

_EVERYTHING = "select (select json_agg(t order by t::text) from mainspring.{table} t)::text"
TABLES = (
    "jobs", "runs", "run_history", "dead_letters", "workers", "replays", "tokens", "run_logs", "workflow_versions",
    "operations",
)  # fmt: skip


@pytest.fixture
async def tenants(assembly: Assembly, api: httpx.AsyncClient) -> AsyncIterator[Tenants]:
    async with several_tenants(assembly, api) as made:
        await made.add("a", "b")
        yield made


async def everything(connection: asyncpg.Connection) -> dict[str, Any]:
    return {table: await connection.fetchval(_EVERYTHING.format(table=table)) for table in TABLES}


PAST = {"from": "2025-03-01T00:00:00Z", "to": "2025-03-05T00:00:00Z"}


class Belongings:
    """The data of tenant a: jobs, runs in every state, a dead letter, a worker, a log, a token."""

    def __init__(self, tenants: Tenants) -> None:
        self.api = tenants.clients["a"]
        self.worker = HandWorker(self.api)

    async def make(self) -> None:
        for body in (
            {"job_id": "daily", "schedule": "@daily"},
            {"job_id": "dying", "retries": 0},
            {"job_id": "done"},
            {"job_id": "running"},
            {"job_id": "waiting", "task": "nobody.can"},
        ):
            answer = await self.api.post("/v1/jobs", json={"task": "noop", **body})
            assert answer.status_code == 201, answer.text
        orders = {order.job_id: order for order in (await self.worker.hello(free=10)).runs}
        await ship(self.worker, chunk(orders["running"], 0, b"private"))
        await self.worker.report(outcome(orders["dying"], "FAILED", error="private"), outcome(orders["done"]))
        self.runs = {}
        for job_id in ("dying", "done", "running", "waiting"):
            latest = (await self.api.get(f"/v1/jobs/{job_id}/status")).json()["latest_run"]
            self.runs[job_id] = latest["run_id"]
        assert (await self.api.get(f"/v1/dead-letters/{self.runs['dying']}")).status_code == 200
        [token] = (await self.api.get("/v1/tokens")).json()["tokens"]
        self.token_id = token["token_id"]
        self.backfill_id = (await self.api.post("/v1/jobs/daily:backfill", json=PAST)).json()["id"]
        await self.api.post(f"/v1/backfills/{self.backfill_id}:pause")  # it creates no more runs meanwhile

        private = {"name": "private", "command": "echo private"}
        await self.api.post("/v1/workflows", json={"workflow_id": "nightly", "steps": [private]})
        self.workflow_run = (await self.api.post("/v1/workflows/nightly:runNow")).json()["run_id"]
        await self.api.post(f"/v1/workflow-runs/{self.workflow_run}:cancel")  # nothing of it moves any more

    def addresses(self) -> list[tuple[str, str, Any]]:
        """Every route with an id, for each id."""
        asked: list[tuple[str, str, Any]] = []
        for job_id in ("daily", "dying", "done", "running", "waiting"):
            for base in ("/v1/jobs", "/jobs"):
                asked += [("GET", f"{base}/{job_id}{rest}", None) for rest in ("", "/status", "/runs", "/upcoming")]
                asked += [("GET", f"{base}/{job_id}/missed", None), ("DELETE", f"{base}/{job_id}", None)]
                asked += [(method, f"{base}/{job_id}", {"description": "x"}) for method in ("PATCH", "PUT")]
                asked += [
                    ("POST", f"{base}/{job_id}{verb}", {}) for verb in (":pause", ":resume", ":runNow", "/runNow")
                ]
        for run_id in self.runs.values():
            asked += [("GET", f"/v1/runs/{run_id}{rest}", None) for rest in ("", "/why", "/timeline", "/logs")]
            asked += [("GET", f"/v1/runs/{run_id}/logs?follow=true", None), ("GET", f"/v1/jobs/{run_id}", None)]
            asked += [("POST", f"/v1/runs/{run_id}{verb}", {}) for verb in (":cancel", ":retry", "/cancel", "/retry")]
            asked += [("GET", f"/v1/dead-letters/{run_id}", None)]
            asked += [("POST", f"/v1/dead-letters/{run_id}:{verb}", {}) for verb in ("replay", "discard")]
        asked += [("GET", f"/v1/workers/{self.worker.worker_id}", None)]
        asked += [("POST", f"/v1/workers/{self.worker.worker_id}:drain", {})]
        asked += [("POST", f"/v1/tokens/{self.token_id}:revoke", {})]
        asked += [("POST", "/v1/jobs/daily:backfill", PAST), ("GET", f"/v1/backfills/{self.backfill_id}", None)]
        asked += [("PATCH", f"/v1/backfills/{self.backfill_id}", {"concurrency": 2})]
        asked += [("GET", f"/v1/workflows/nightly{rest}", None) for rest in ("", "/runs")]
        asked += [("DELETE", "/v1/workflows/nightly", None), ("PATCH", "/v1/workflows/nightly", {"description": "x"})]
        asked += [("POST", f"/v1/workflows/nightly:{verb}", {}) for verb in ("pause", "resume", "runNow")]
        asked += [("GET", f"/v1/workflow-runs/{self.workflow_run}{rest}", None) for rest in ("", "/steps")]
        asked += [("POST", f"/v1/workflow-runs/{self.workflow_run}:{verb}", {}) for verb in ("cancel", "rerun")]
        asked += [("POST", f"/v1/backfills/{self.backfill_id}:{verb}", {}) for verb in ("pause", "resume", "cancel")]
        return asked


@pytest.mark.parametrize("asker", ["b", "default"], ids=["another tenant", "the operator"])
async def test_ids_of_another_tenant_answer_404_everywhere_and_nothing_changes(
    tenants: Tenants, connection: asyncpg.Connection, asker: str
) -> None:
    belongings = Belongings(tenants)
    await belongings.make()
    before = await everything(connection)
    for method, address, body in belongings.addresses():
        answer = await tenants.clients[asker].request(method, address, json=body)
        assert (answer.status_code, problem(answer)["code"]) == (404, "not_found"), (method, address, answer.text)
        assert "private" not in answer.text
    assert await everything(connection) == before


async def test_lists_hold_nothing_of_another_tenant(tenants: Tenants, connection: asyncpg.Connection) -> None:
    belongings = Belongings(tenants)
    await belongings.make()
    before = await everything(connection)
    b = tenants.clients["b"]
    for address, name in (
        ("/v1/jobs", "jobs"),
        ("/v1/jobs?q=d", "jobs"),
        ("/v1/runs", "runs"),
        ("/v1/runs?job=running", "runs"),
        ("/v1/runs?queue=default", "runs"),
        ("/v1/runs?task=noop", "runs"),
        ("/v1/dead-letters", "dead_letters"),
        ("/v1/dead-letters?job=dying", "dead_letters"),
        ("/v1/workers", "workers"),
        ("/v1/queues", "queues"),
        ("/v1/tasks", "tasks"),
        ("/v1/backfills", "backfills"),
        ("/v1/workflows", "workflows"),
    ):
        answer = await b.get(address)
        assert (answer.status_code, answer.json()[name]) == (200, []), address
    assert (await b.get("/v1/queues/default")).status_code == 404
    for verb in ("replay", "discard"):
        answer = await b.post(f"/v1/dead-letters:{verb}", json={"all": True})
        assert answer.json()[f"{verb}ed"] == 0
    metrics = (await b.get("/metrics")).text
    assert "mainspring_dead_letters 0.0" in metrics
    assert 'queue="default"' not in metrics
    assert "mainspring_jobs_submitted" not in metrics, "what a server counts is about all tenants"
    assert "mainspring_jobs_submitted" in (await tenants.operator.get("/metrics")).text
    assert await everything(connection) == before


async def test_two_tenants_may_use_the_same_ids_and_keys(tenants: Tenants) -> None:
    body = {"job_id": "report", "task": "noop", "schedule": "@daily", "idempotency_key": "k"}
    for name in ("a", "b"):
        made = await tenants.clients[name].post("/v1/jobs", json={**body, "payload": {"of": name}})
        assert made.status_code == 201, made.text
    for name in ("a", "b"):
        assert (await tenants.clients[name].get("/v1/jobs/report")).json()["payload"] == {"of": name}
    assert (await tenants.clients["a"].delete("/v1/jobs/report")).json()["status"] == "CANCELLED"
    assert (await tenants.clients["b"].get("/v1/jobs/report")).json()["status"] == "SCHEDULED"


async def test_a_worker_of_one_tenant_cannot_report_or_print_for_another(tenants: Tenants) -> None:
    belongings = Belongings(tenants)
    await belongings.make()
    thief = HandWorker(tenants.clients["b"])
    await thief.hello()
    thief.worker_id, thief.seq = belongings.worker.worker_id, belongings.worker.seq
    answer = await thief.ask(outcomes=[], free=10)
    assert problem(answer)["code"] == "unknown_worker"
    run = (await belongings.api.get(f"/v1/runs/{belongings.runs['running']}")).json()
    assert (run["status"], run["executor_id"]) == ("RUNNING", str(belongings.worker.worker_id))
