"""FEATURES 7.4: what a tenant may use at most. Quotas are set by an instance administrator, shown to the tenant, and
never exceeded by more than docs/quotas.md says."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.operations.limits.gate_keeper import GateKeeper
from mainspring.operations.logs.log_bounds import LogBudget
from mainspring.roles.assembly import Assembly
from mainspring.wire.exchange import RunOrder
from tests.api.bookkeeping import problem
from tests.operations.gated import check_counts, submit
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.tenants import Tenants, several_tenants

pytestmark = pytest.mark.anyio

CLIENTS = 64
LATER = "2031-01-01T00:00:00Z"


@pytest.fixture
async def tenants(assembly: Assembly, api: httpx.AsyncClient) -> AsyncIterator[Tenants]:
    async with several_tenants(assembly, api) as made:
        await made.add("acme")
        yield made


@pytest.fixture
async def acme(tenants: Tenants) -> httpx.AsyncClient:
    return tenants.clients["acme"]


async def put(tenants: Tenants, name: str = "acme", **quotas: Any) -> dict[str, Any]:
    answer = await tenants.operator.put(f"/v1/tenants/{name}/quotas", json=quotas)
    assert answer.status_code == 200, answer.text
    view: dict[str, Any] = answer.json()
    return view


async def used(client: httpx.AsyncClient, name: str = "acme") -> dict[str, tuple[int | None, int | None, bool]]:
    view = (await client.get(f"/v1/tenants/{name}/usage")).json()
    return {one["quota"]: (one["used"], one["limit"], one["near"]) for one in view["quotas"]}


async def count(assembly: Assembly) -> None:
    """What each server does once a second."""
    [keeper] = [task for task in assembly.periodic_tasks if isinstance(task, GateKeeper)]
    await keeper.run_once()


async def take(worker: HandWorker, free: int = 1) -> list[RunOrder]:
    """As many runs as it is given, at most `free`."""
    return list((await worker.exchange(free=free, hello=None if worker.seq else worker.card)).runs)


def refusal(answer: httpx.Response) -> tuple[int, str, str | None, int | None, int | None]:
    found = problem(answer)
    assert ("retry-after" in answer.headers) == (found["status"] == 429)
    return found["status"], found["code"], found.get("field"), found.get("limit"), found.get("used")


async def test_quotas_are_set_by_an_instance_administrator_and_are_in_the_audit(
    tenants: Tenants, acme: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    path = "/v1/tenants/acme/quotas"
    assert problem(await acme.put(path, json={"tokens": 5}))["code"] == "instance_admin_only"
    assert (await tenants.operator.put("/v1/tenants/none/quotas", json={"tokens": 5})).status_code == 404
    assert (await acme.get("/v1/tenants/default/usage")).status_code == 404
    for body, field in (({"tokens": 0}, "tokens"), ({"runs_per_minute": 10**10}, "runs_per_minute"),
                        ({"concurrent_runs": "5"}, "concurrent_runs"), ({"history": 5}, "history")):  # fmt: skip
        found = problem(await tenants.operator.put(path, json=body))
        assert (found["status"], found["field"]) == (422, field), body
    assert await connection.fetchval("select count(*) from mainspring.tenant_quotas where version > 0") == 0

    view = await put(tenants, tokens=5, stored_jobs=10)
    assert (view["tenant"], view["version"], view["updated_by"] is None) == ("acme", 1, False)
    stale = await tenants.operator.put(path, json={"tokens": 6}, headers={"If-Match": '"0"'})
    assert problem(stale)["code"] == "version_mismatch"
    await put(tenants, tokens=None, payload_bytes=100)
    found = await used(acme)
    assert (found["tokens"], found["stored_jobs"]) == ((1, None, False), (0, 10, False))
    assert found["payload_bytes"] == (None, 100, False)
    assert (await used(tenants.operator, "default"))["stored_jobs"][1] is None
    entries = (await acme.get("/v1/audit", params={"kind": "tenant"})).json()["entries"]
    last = next(one for one in entries if one["operation"] == "tenants.set_quotas")
    assert last["before"]["quotas"] == {"stored_jobs": 10, "tokens": 5}
    assert last["after"]["quotas"] == {"stored_jobs": 10, "payload_bytes": 100}


async def test_stored_jobs_and_tokens_are_exact_under_64_clients(tenants: Tenants, acme: httpx.AsyncClient) -> None:
    await put(tenants, stored_jobs=20, tokens=10)

    async def one(number: int) -> list[httpx.Response]:
        job = {"task": "noop", "job_id": f"j{number}", "schedule_time": LATER}
        token = {"name": f"t{number}", "role": "viewer"}
        return [await acme.post("/v1/jobs", json=job), await acme.post("/v1/tokens", json=token)]

    answers = await asyncio.gather(*map(one, range(CLIENTS)))
    for place, (stored, limit) in enumerate(((20, 20), (9, 10))):  # the first token came with the tenant
        statuses = Counter(answer[place].status_code for answer in answers)
        assert statuses == {201: stored, 403: CLIENTS - stored}
        refused = next(answer[place] for answer in answers if answer[place].status_code == 403)
        name = ("stored_jobs", "tokens")[place]
        assert refusal(refused) == (403, "quota_exceeded", name, limit, limit + 1)
    assert ((await used(acme))["stored_jobs"], (await used(acme))["tokens"]) == ((20, 20, True), (10, 10, True))
    warnings = (await acme.get("/v1/tenants/acme/usage")).json()["warnings"]
    assert [one.split(" ")[0:3] for one in warnings] == [["20", "of", "20"], ["10", "of", "10"]]
    # A job that runs at once is none that is stored, a repeat changes nothing, and a deleted job makes room.
    assert (await acme.post("/v1/jobs", json={"task": "noop"})).status_code == 201
    first = next(n for n, answer in enumerate(answers) if answer[0].status_code == 201)
    assert (await acme.delete(f"/v1/jobs/j{first}")).status_code == 200
    batch = [{"task": "noop", "schedule_time": LATER}] * 2
    assert refusal(await acme.post("/v1/jobs:batch", json={"jobs": batch}))[:2] == (403, "quota_exceeded")
    assert (await acme.post("/v1/jobs", json=batch[0])).status_code == 201


async def test_jobs_of_files_and_jobs_that_come_back_are_within_quotas(
    tenants: Tenants, acme: httpx.AsyncClient
) -> None:
    """A file is one submission, whatever it stores: it neither waits for itself nor spends its tokens on a plan."""

    def files(jobs: int, payload: str = "") -> dict[str, Any]:
        body = {"task": "noop", "cron": "@yearly", "payload": {"text": payload}}
        return {"owner": "team", "objects": [{"kind": "jobs", "id": f"f{n}", "body": body} for n in range(jobs)]}

    await put(tenants, stored_jobs=3, submissions_per_second=2, payload_bytes=100)
    applied = await acme.post("/v1/files:apply", json=files(3))
    assert applied.status_code == 200, applied.text
    for kind, asked in (("plan", files(4)), ("apply", files(3, "x" * 200))):
        assert "quota" in (await acme.post(f"/v1/files:{kind}", json=asked)).text, kind
    # A job that was deleted and one whose time was over take a place when they come back.
    assert (await acme.delete("/v1/jobs/f0")).status_code == 200
    other = {"task": "noop", "job_id": "other", "cron": "@yearly"}
    assert (await acme.post("/v1/jobs", json=other)).status_code in (201, 429)
    await put(tenants, submissions_per_second=None)
    await acme.post("/v1/jobs", json=other)
    refused = await acme.post("/v1/jobs/f0:resume", json={})
    assert refusal(refused) == (403, "quota_exceeded", "stored_jobs", 3, 4)
    assert (await acme.get("/v1/jobs/f0")).json()["status"] == "CANCELLED"
    assert (await acme.delete("/v1/jobs/other")).status_code == 200
    assert (await acme.post("/v1/jobs/f0:resume", json={})).status_code == 200
    # The parameters of workflows are payloads.
    await put(tenants, stored_jobs=None)
    flow = {"workflow_id": "w", "steps": [{"name": "a", "task": "noop"}], "parameters": {"p": "x"}}
    assert (await acme.post("/v1/workflows", json=flow)).status_code == 201
    large = {"parameters": {"p": "x" * 200}}
    for answer in (
        await acme.patch("/v1/workflows/w", json=large),
        await acme.post("/v1/workflows/w:runNow", json=large),
    ):
        assert refusal(answer)[:3] == (403, "quota_exceeded", "parameters")


async def test_submissions_per_second_of_64_clients(
    tenants: Tenants, acme: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    rate = 20
    await put(tenants, submissions_per_second=rate)
    clock = "select extract(epoch from clock_timestamp())::float8"
    began = await connection.fetchval(clock)

    async def one(_: int) -> list[httpx.Response]:
        return [await acme.post("/v1/jobs", json={"task": "noop"}) for _ in range(4)]

    answers = [answer for some in await asyncio.gather(*map(one, range(CLIENTS))) for answer in some]
    seconds = await connection.fetchval(clock) - began
    statuses = Counter(answer.status_code for answer in answers)
    assert set(statuses) <= {201, 429}
    assert rate <= statuses[201] <= rate * (seconds + 2)
    assert await connection.fetchval("select count(*) from mainspring.runs") == statuses[201]
    for answer in (answer for answer in answers if answer.status_code == 429):
        assert refusal(answer)[:4] == (429, "over_quota", "submissions_per_second", rate)
    too_large = await acme.post("/v1/jobs:batch", json={"jobs": [{"task": "noop"}] * (rate + 1)})
    assert refusal(too_large) == (403, "quota_exceeded", "submissions_per_second", rate, rate + 1)
    # Others are not concerned, and the end of the quota is noticed at once.
    assert (await tenants.operator.post("/v1/jobs:batch", json=[{"task": "noop"}] * (rate + 1))).status_code == 201
    await put(tenants, submissions_per_second=None)
    assert len(await submit(acme, rate + 1)) == rate + 1


async def test_queued_runs_under_64_clients_and_the_size_of_payloads(
    tenants: Tenants, acme: httpx.AsyncClient, assembly: Assembly
) -> None:
    await put(tenants, queued_runs=30, payload_bytes=50)
    await acme.put("/v1/tenant/limits", json={"max_depth": 1000})
    await count(assembly)
    answers = await asyncio.gather(*(acme.post("/v1/jobs", json={"task": "noop"}) for _ in range(CLIENTS)))
    statuses = Counter(answer.status_code for answer in answers)
    # Exact, unless a count falls into it: then runs that are being stored are not in the count.
    assert 30 <= statuses[201] <= 30 + CLIENTS and statuses[201] + statuses[429] == CLIENTS
    await count(assembly)
    refused = refusal(await acme.post("/v1/jobs", json={"task": "noop"}))
    assert refused[:4] == (429, "over_quota", "queued_runs", 30) and (await used(acme))["queued_runs"] == (30, 30, True)
    # A schedule fires all the same: its run waits and is not lost.
    later = (await acme.post("/v1/jobs", json={"task": "noop", "schedule_time": LATER})).json()["job_id"]
    assert (await acme.post(f"/v1/jobs/{later}:runNow")).status_code == 202
    large = {"task": "noop", "payload": {"text": "ä" * 25}, "schedule_time": LATER}
    assert refusal(await acme.post("/v1/jobs", json=large)) == (403, "quota_exceeded", "payload", 50, 61)
    assert refusal(await acme.patch(f"/v1/jobs/{later}", json={"payload": large["payload"]}))[1] == "quota_exceeded"
    changed = await acme.post(f"/v1/jobs/{later}:runNow", json={"payload": large["payload"]})
    assert refusal(changed)[1] == "quota_exceeded"


async def check_held(acme: httpx.AsyncClient, reason: str, number: int) -> None:
    """Runs over quota are HELD with that quota as the reason, wherever they are shown."""
    held = (await acme.get("/v1/runs", params={"status": "held"})).json()["runs"]
    assert len(held) == number
    assert (await acme.get("/v1/runs", params={"status": "queued"})).json()["runs"] == []
    run_id = held[0]["run_id"]
    one = (await acme.get(f"/v1/runs/{run_id}")).json()
    of_job = (await acme.get(f"/v1/jobs/{one['job_id']}/runs")).json()[0]
    latest = (await acme.get(f"/v1/jobs/{one['job_id']}")).json()["latest_run"]
    for view in (*held, one, of_job, latest):
        assert view["status"] == "HELD" and view["reason"].startswith(reason), view
    listed = (await acme.get("/v1/jobs", params={"status": "scheduled", "latest_run": "held"})).json()["jobs"]
    assert len(listed) == number
    why = (await acme.get(f"/v1/runs/{run_id}/why")).json()
    assert (why["status"], why["why"].startswith(f"It is held by the {reason}")) == ("HELD", True), why
    last = (await acme.get(f"/v1/runs/{run_id}/timeline")).json()[-1]
    assert last["state"] == "HELD" and last["reason"].startswith(reason)
    [queue] = (await acme.get("/v1/queues")).json()["queues"]
    assert (queue["depth"], queue["held"], queue["held_by_quota"]) == (0, number, number)
    cancel = {"verb": "cancel", "filter": {"status": ["held"]}, "dry_run": True}
    assert (await acme.post("/v1/runs:act", json=cancel)).json()["count"] == number


async def test_concurrent_runs_and_runs_per_minute_hold_what_fires_and_let_it_go(
    tenants: Tenants, acme: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    """The tenant cannot widen its quota, runs that run when it is set count, and what waits says why."""
    early = HandWorker(acme)
    await submit(acme, 1)
    [running] = await early.claim(1)
    await put(tenants, concurrent_runs=2)
    await acme.put("/v1/tenant/limits", json={"concurrency": 100})
    await submit(acme, 6)
    workers = [HandWorker(acme) for _ in range(8)]
    claimed = [order for some in await asyncio.gather(*(take(one, 4) for one in workers)) for order in some]
    assert len(claimed) == 1
    await check_held(acme, "quota concurrent_runs (2): 2 runs are with workers", 5)
    assert (await used(acme))["concurrent_runs"] == (2, 2, True)
    await early.report(outcome(running))
    await check_counts(connection)
    assert len(await take(early, 4)) == 1  # as many as there is room for
    await put(tenants, concurrent_runs=None, runs_per_minute=1)
    await acme.put("/v1/tenant/limits", json={"concurrency": None, "rate": "1000/s"})
    more = [order for some in [await take(one) for one in workers] for order in some]
    assert len(more) == 1
    await check_held(acme, "quota runs_per_minute (1): the next start is in", 3)
    await acme.put("/v1/tenant/limits", json={"rate": None})  # does not fill the bucket of the quota
    assert not await take(workers[0])
    await put(tenants, runs_per_minute=None)
    assert len(await take(HandWorker(acme), 4)) == 3
    await check_counts(connection)


async def test_a_worker_gets_runs_in_advance_while_a_quota_has_room_for_twice_as_many(
    tenants: Tenants, acme: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await put(tenants, concurrent_runs=1000, runs_per_minute=60_000)
    await submit(acme, 60)
    one, other = HandWorker(acme), HandWorker(acme)
    one.card.slots = other.card.slots = 10
    assert len(await take(one, 20)) == 20  # also while all its slots are taken
    assert len(await take(one, 10)) == 10
    await put(tenants, concurrent_runs=50)
    assert len(await take(other, 20)) == 10
    assert len(await take(other, 20)) == 0
    await check_counts(connection)


async def test_metrics_show_quotas_and_none_without(
    tenants: Tenants, acme: httpx.AsyncClient, assembly: Assembly
) -> None:
    assert "mainspring_quota" not in (await acme.get("/metrics", params={"gauges": "yes"})).text
    await put(tenants, tokens=4, log_bytes_per_day=1000)
    await count(assembly)
    text = (await acme.get("/metrics", params={"gauges": "yes"})).text
    for line in ('mainspring_quota_limit{quota="tokens"} 4.0', 'mainspring_quota_used{quota="tokens"} 1.0',
                 'mainspring_quota_limit{quota="log_bytes_per_day"} 1000.0'):  # fmt: skip
        assert line in text, line
    [budget] = [task for task in assembly.periodic_tasks if isinstance(task, LogBudget)]
    assert budget.room(tenants.ids["acme"], 0) == 1000 and budget.room(1, 0) > 1000  # type: ignore[arg-type]
