"""Ids by a part of them: `GET /v1/ids`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.operations.read import ids
from mainspring.roles.assembly import Assembly
from tests.api.bookkeeping import problem
from tests.operations.firing import fire_due
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.tenants import Tenants, several_tenants

pytestmark = pytest.mark.anyio


async def find(api: httpx.AsyncClient, part: str, *kinds: str) -> dict[str, Any]:
    answer = await api.get("/v1/ids", params={"part": part, **({"kind": list(kinds)} if kinds else {})})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def found(api: httpx.AsyncClient, part: str, *kinds: str) -> list[tuple[str, str]]:
    return [(match["kind"], match["id"]) for match in (await find(api, part, *kinds))["ids"]]


async def submit(api: httpx.AsyncClient, **body: Any) -> str:
    answer = await api.post("/v1/jobs", json={"task": "noop", **body})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["job_id"])


async def test_an_id_is_found_by_its_beginning_and_by_its_end(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    now = await submit(api, name="first")
    await submit(api, job_id="daily_report", schedule="@daily")
    await submit(api, job_id="past", schedule={"at": "2020-01-01T00:00:00Z"})
    await fire_due(assembly, connection)
    for part in (now[-8:], now[-13:], now[:-1], now.upper()[:-2]):
        assert await found(api, part, "run") == [("run", now)], part
    assert await find(api, now[-8:], "job") == {
        "ids": [{"kind": "job", "id": now, "name": None}], "complete": True, "more": False,
    }  # fmt: skip
    assert (await find(api, now[-8:], "run"))["ids"][0]["name"] == "first"
    assert await found(api, "daily_") == await found(api, "_report") == [("job", "daily_report")]
    assert await found(api, "past") == [("job", "past")]  # it has fired: it has no row among the jobs
    assert await found(api, "ail%_report") == await found(api, "report_") == []


async def test_live_ended_and_dead_runs_and_workers_are_found(api: httpx.AsyncClient) -> None:
    dying, done, waiting = (
        await submit(api, retries=0), await submit(api), await submit(api, task="nobody.can"),
    )  # fmt: skip
    worker = HandWorker(api)
    orders = {str(order.run_id): order for order in (await worker.hello(free=10)).runs}
    await worker.report(outcome(orders[dying], "FAILED", error="no"), outcome(orders[done]))
    for run_id in (dying, done, waiting):
        assert await found(api, run_id[-10:], "run") == [("run", run_id)]
        letters = [("dead_letter", dying)] if run_id == dying else []
        assert await found(api, run_id[-10:], "dead_letter") == letters
    worker_id = str(worker.worker_id)
    assert await found(api, worker_id[-8:], "worker") == [("worker", worker_id)]
    assert await found(api, worker_id[:-3], "worker") == [("worker", worker_id)]


async def test_no_more_rows_are_read_than_the_bound(
    api: httpx.AsyncClient, connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ids, "SCANNED", 3)
    made = [await submit(api) for _ in range(4)]
    assert (await find(api, made[3][-8:], "run"))["complete"] is False
    assert await found(api, made[3][-8:], "run") == [("run", made[3])]
    assert await found(api, made[0][-8:], "run") == []
    assert await found(api, made[0][:-2], "run") == [("run", made[0])]  # by an index
    monkeypatch.setattr(ids, "SCANNED", 5)
    assert (await find(api, made[0][-8:], "run"))["complete"] is True


async def test_twenty_are_listed(api: httpx.AsyncClient) -> None:
    for number in range(21):
        await submit(api, job_id=f"same-{number}", schedule="@daily")
    answer = await find(api, "same-", "job")
    assert (len(answer["ids"]), answer["more"]) == (20, True)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("part=abc", "part"),
        ("part=" + "a" * 1001, "part"),
        ("part=abcd%00", "part"),
        ("part=abcd&kind=planet", "kind"),
        ("part=abcd&typ=run", "typ"),
        ("kind=run", "part"),
    ],
)
async def test_a_bad_question_names_its_parameter(api: httpx.AsyncClient, query: str, field: str) -> None:
    answer = await api.get(f"/v1/ids?{query}")
    assert answer.status_code in (400, 422)
    assert field in problem(answer).get("field", "") or field in answer.text


@pytest.fixture
async def tenants(assembly: Assembly, api: httpx.AsyncClient) -> AsyncIterator[Tenants]:
    async with several_tenants(assembly, api) as made:
        await made.add("a", "b")
        yield made


async def test_a_tenant_finds_nothing_of_another(tenants: Tenants) -> None:
    mine, other = tenants.clients["a"], tenants.clients["b"]
    run_id = await submit(mine, retries=0)
    await submit(mine, job_id="daily_report", schedule="@daily")
    worker = HandWorker(mine)
    [order] = (await worker.hello(free=1)).runs
    assert str(order.run_id) == run_id
    worker_id = str(worker.worker_id)
    for part in (run_id[-8:], run_id[:-1], "daily_report", "daily", worker_id[-8:]):
        assert await found(mine, part) != []
        assert await found(other, part) == []
    await worker.report(outcome(order, "FAILED", error="no"))
    assert ("dead_letter", run_id) in await found(mine, run_id[-8:])
    assert await found(other, run_id[-8:]) == []
