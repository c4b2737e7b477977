"""What answers of jobs inside say of jobs outside: dependencies, limits, events, filters by what is hidden."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

import httpx
import msgspec
import pytest

from mainspring.api.outside import general, without_outside
from mainspring.roles.assembly import Assembly
from tests.api.bookkeeping import problem
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.tenants import Tenants, several_tenants

pytestmark = pytest.mark.anyio

MARK = "private-5c1e"
INSIDE = {"queue": "pay", "task": "pay.run"}
OUTSIDE = {"queue": MARK, "task": f"{MARK}.run"}


@pytest.fixture
async def tenants(assembly: Assembly, api: httpx.AsyncClient) -> AsyncIterator[Tenants]:
    async with several_tenants(assembly, api) as made:
        yield made


async def made(api: httpx.AsyncClient, body: dict[str, Any], path: str = "/v1/jobs") -> dict[str, Any]:
    answer = await api.post(path, json=body)
    assert answer.status_code in (200, 201, 202), answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_jobs_inside_do_not_name_those_outside(tenants: Tenants, api: httpx.AsyncClient) -> None:
    shared = {"task": "pay.run", "concurrency": {"limit": 1, "per": "task"}}
    await made(api, {**OUTSIDE, **shared, "job_id": f"{MARK}-slot"})
    await made(api, {**OUTSIDE, "job_id": f"{MARK}-daily", "schedule": "@daily"})
    await made(api, {**OUTSIDE, "job_id": f"{MARK}-dead", "retries": 0})
    await made(api, {**INSIDE, "job_id": "near", "schedule": "@daily"})
    await made(api, {**INSIDE, "job_id": "waits", "depends_on": [f"{MARK}-daily", "near"]})
    await made(api, {**INSIDE, "job_id": "blocked", "depends_on": [f"{MARK}-dead"]})
    await made(api, {**INSIDE, "job_id": "after", "schedule": {"after": [f"{MARK}-daily"]}})
    await made(api, {**INSIDE, "job_id": "held", **shared})
    worker = HandWorker(api, queues=[MARK, "pay"], tasks=[f"{MARK}.run", "pay.run"])
    orders = {order.job_id: order for order in (await worker.hello(free=10)).runs}
    await worker.report(outcome(orders[f"{MARK}-dead"], "FAILED", error=f"{MARK} failed"))
    quotas = await api.put("/v1/tenants/default/quotas", json={"concurrent_runs": 1})
    assert quotas.status_code == 200, quotas.text
    await made(api, {**INSIDE, "job_id": "over"})
    client = await tenants.client((await tenants.token(role="operator", queues=["pay"]))["token"])
    paths = ["/v1/jobs", "/v1/runs", "/v1/dead-letters", "/v1/operations", "/v1/approvals", "/v1/queues", "/v1/session"]
    for job_id in ("waits", "blocked", "after", "held", "over"):
        runs = (await api.get(f"/v1/jobs/{job_id}/runs")).json()
        paths += [f"/v1/jobs/{job_id}{more}" for more in ("", "/status", "/timeline", "/runs", "/upcoming", "/missed")]
        paths += [f"/v1/runs/{run['run_id']}{more}" for run in runs for more in ("", "/timeline", "/logs")]
    for path in paths:
        answer = await client.get(path)
        assert answer.status_code == 200, (path, answer.text)
        assert MARK not in answer.text and "of 1 in use" not in answer.text and "(1)" not in answer.text, path
    shown = {
        job_id: (await client.get(f"/v1/jobs/{job_id}")).json()
        for job_id in ("waits", "after", "blocked", "held", "over")
    }
    assert shown["waits"]["depends_on"] == ["***", "near"]
    assert (shown["after"]["after"], shown["after"]["schedule"]) == (["***"], "after ***")
    reasons = {}
    for job_id in ("waits", "blocked", "held", "over"):
        [run] = (await client.get(f"/v1/jobs/{job_id}/runs")).json()
        reasons[job_id] = (run["status"], run["reason"])
    assert reasons["waits"] == ("WAITING", "waiting for the runs that it depends on")
    assert reasons["held"] == ("HELD", "waiting for room in a limit")
    assert reasons["over"] == ("HELD", "quota concurrent_runs")
    # A token that reaches everything sees all of it.
    everything = await tenants.client((await tenants.token(role="operator", addresses=["127.0.0.0/8"]))["token"])
    assert (await everything.get("/v1/jobs/waits")).json()["depends_on"] == [f"{MARK}-daily", "near"]
    [run] = (await everything.get("/v1/jobs/waits/runs")).json()
    assert f"{MARK}-daily" in run["reason"]


async def test_a_cycle_through_jobs_outside_is_refused_without_their_names(
    tenants: Tenants, api: httpx.AsyncClient
) -> None:
    daily = {"schedule": "@daily"}
    await made(api, {**INSIDE, **daily, "job_id": "first"})
    await made(api, {**OUTSIDE, **daily, "job_id": f"{MARK}-between", "depends_on": ["first"]})
    await made(api, {**INSIDE, **daily, "job_id": "last", "depends_on": [f"{MARK}-between"]})
    client = await tenants.client((await tenants.token(role="admin", queues=["pay"]))["token"])
    for sender, named in ((client, False), (api, True)):
        refused = problem(await sender.patch("/v1/jobs/first", json={"depends_on": ["last"]}))
        assert (refused["status"], refused["code"], refused["field"]) == (422, "cycle", "depends_on"), refused
        assert (MARK in str(refused)) == named


def test_a_general_reason_names_nothing() -> None:
    assert general(f"upstream failed: {MARK}", "SKIPPED") == "upstream failed"
    assert general(f"waiting for run {MARK}, which is before it", "HELD") == "waiting for room in a limit"
    assert general(f"for {MARK}", "WAITING") == "for the runs that it depends on"
    assert general("waiting for a free slot", "QUEUED") == "waiting for a free slot"
    assert general("exit code 1", "FAILED") == "exit code 1"


class _Shown(msgspec.Struct):
    status: str
    reason: str
    error_message: str


@pytest.mark.parametrize("status", ["HELD", "WAITING", "RUNNING"])
async def test_the_error_of_an_attempt_stays_whatever_the_run_waits_for(status: str) -> None:
    async def outside(_ids: Iterable[str]) -> set[str]:
        return set()

    shown = await without_outside(_Shown(status, "waiting for pay-9", "waiting for the bank took too long"), outside)
    assert shown.error_message == "waiting for the bank took too long"
    assert ("pay-9" in shown.reason) == (status == "RUNNING")
    shown = await without_outside(_Shown("FAILED", "", "upstream failed: pay-9"), outside)
    assert shown.error_message == "upstream failed"


async def test_what_is_hidden_is_no_filter(tenants: Tenants, api: httpx.AsyncClient) -> None:
    await made(api, {**INSIDE, "job_id": "j", "payload": {"account": MARK}, "search": ["account"]})
    client = await tenants.client((await tenants.token(role="operator", payloads=False))["token"])
    for value in (MARK, "other"):
        refused = problem(await client.get(f"/v1/runs?payload.account={value}"))
        assert (refused["status"], refused["code"], refused["field"]) == (403, "narrowed_token", "payload")
        acts = {"verb": "cancel", "filter": {"payload": {"account": value}}}
        answer = await client.post("/v1/runs:act", json=acts)
        assert answer.status_code in (403, 422), answer.text
    assert (await client.get(f"/v1/jobs?q={MARK}")).json()["jobs"] == []
