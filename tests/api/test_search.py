"""What the dashboard asks while somebody types: checks of jobs, matches of names, nodes."""

from __future__ import annotations

from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.roles.assembly import Assembly
from mainspring.store import leases
from tests.api.bookkeeping import problem, rows
from tests.operations.hand_worker import HandWorker
from tests.operations.tenants import several_tenants

pytestmark = pytest.mark.anyio


async def found(api: httpx.AsyncClient, text: str) -> list[tuple[str, str]]:
    answer = await api.get("/v1/search", params={"q": text})
    assert answer.status_code == 200, answer.text
    return [(match["kind"], match["id"]) for match in answer.json()["matches"]]


async def test_a_job_is_checked_as_its_creation_would_and_nothing_is_stored(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    before = await rows(connection)
    body = {"task": "report", "job_id": "r", "schedule": {"cron": "0 9 * * MON-FRI", "timezone": "Europe/Berlin"}}
    checked = await api.post("/v1/jobs:validate", json=body)
    assert checked.status_code == 200, checked.text
    found = checked.json()
    found.pop("warnings")  # no worker offers the task
    assert found == {
        "task": "report", "queue": "default", "schedule_type": "CRON", "schedule": "0 9 * * MON-FRI (Europe/Berlin)",
        "schedule_in_words": "At 09:00, Monday to Friday, Europe/Berlin",
    }  # fmt: skip
    wrong: list[dict[str, Any]] = [
        {"schedule": {"cron": "61 * * * *"}}, {"timeout": "soon"}, {"task": ""}, {"queu": "x"},
        {"schedule": {"cron": "@daily", "calendar": "nobody"}}, {"retries": -1},
    ]  # fmt: skip
    for change in wrong:
        check = problem(await api.post("/v1/jobs:validate", json={"task": "x", **change}))
        assert check == problem(await api.post("/v1/jobs", json={"task": "x", **change})), change
        assert check["status"] == 422 and check["field"]
    assert await rows(connection) == before


async def test_names_are_found_by_their_beginning(api: httpx.AsyncClient, assembly: Assembly) -> None:
    for job_id, name in (("report-daily", None), ("x1", "Report of sales"), ("other", "a report")):
        body = {"task": "billing.charge", "queue": "Reports", "job_id": job_id, "name": name, "schedule": "@daily"}
        assert (await api.post("/v1/jobs", json=body)).status_code == 201
    worker = HandWorker(api)
    worker.card.name = "reporter"
    await worker.hello(free=0)
    assert await found(api, "rep") == [
        ("job", "report-daily"), ("job", "x1"), ("queue", "Reports"), ("worker", str(worker.worker_id)),
    ]  # fmt: skip
    assert await found(api, "BILL") == [("task", "billing.charge")]
    assert await found(api, "%") == [] and await found(api, "port") == []
    async with several_tenants(assembly, api) as tenants:
        [acme] = await tenants.add("acme")
        assert await found(acme, "rep") == []
    for text in ("", "x" * 201, None):
        answer = await api.get("/v1/search", params={} if text is None else {"q": text})
        assert problem(answer)["field"] == "q"


async def test_a_run_is_found_by_both_ends_of_its_id_and_lists_are_short(api: httpx.AsyncClient) -> None:
    jobs = [{"task": "noop", "job_id": f"many-{number}", "schedule": "@daily"} for number in range(20)]
    assert (await api.post("/v1/jobs:batch", json=jobs)).status_code == 201
    run_id = (await api.post("/v1/jobs", json={"task": "noop"})).json()["job_id"]
    for part in (run_id, run_id[:13], run_id[-6:], run_id[-6:].upper()):
        assert ("run", run_id) in await found(api, part), part
    answer = (await api.get("/v1/search?q=many")).json()
    assert (len(answer["matches"]), answer["more"]) == (8, True)


async def test_nodes_are_listed_with_their_shards(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    assert assembly.node is not None
    await leases.node_seen(connection, assembly.node.node_id, "host-1")
    await leases.take(connection, assembly.node.node_id, range(3), 600.0)
    shown = (await api.get("/v1/nodes")).json()
    [node] = shown["nodes"]
    assert (node["node_id"], node["host"], node["shards"]) == (str(assembly.node.node_id), "host-1", 3)
    assert (shown["shards_held"], shown["shards"]) == (3, 128)
