"""Searches that read whole tables, and lists of large rows. A table lock stands for a search that takes long.

Needs: PostgreSQL.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import httpx
import msgspec
import pytest

from mainspring.domain.errors import MainspringError
from mainspring.kernel.ids import TenantId
from mainspring.operations.paging.search import search_in_words
from mainspring.roles.assembly import Assembly
from mainspring.store.pages import PAGE_BYTES
from mainspring.store.queries import load
from mainspring.store.searches import Searches, SearchesBusy, SearchTooSlow
from tests.api.bookkeeping import problem
from tests.operations.waiting import until
from tests.store.test_plans import nodes

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def locked(connection: asyncpg.Connection, *tables: str) -> AsyncIterator[None]:
    """While a table is locked like this, everything that reads it waits."""
    async with connection.transaction():
        for table in tables:
            await connection.execute(f"lock table mainspring.{table} in access exclusive mode")
        yield


@pytest.fixture
def impatient(assembly: Assembly) -> Assembly:
    """A search has no time."""
    assembly.store.searches.seconds = 0.05
    return assembly


# --- time


SEARCHES = [
    ("/v1/jobs?q=a", "jobs", "q", "job_id"),
    ("/v1/jobs?owner=a", "jobs", "owner", "job_id"),
    ("/v1/jobs?label=a:b&status=paused", "jobs", "label", "job_id"),
    ("/v1/runs?status=failed&error=a", "run_history", "error", "since"),
    ("/v1/runs?since=2026-01-01T00:00:00Z", "run_history", "since", "job"),
    ("/v1/dead-letters?error=a", "dead_letters", "error", "page by page"),
]


async def test_a_search_that_takes_too_long_is_stopped_and_names_what_to_change(
    impatient: Assembly, api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    for path, table, field, narrower in SEARCHES:
        async with locked(connection, table):
            refused = problem(await api.get(path))
        assert (refused["status"], refused["code"], refused["field"]) == (422, "search_too_slow", field), path
        assert "took longer than" in refused["detail"] and narrower in refused["hint"]
    impatient.store.searches.seconds = 30
    for path, *_ in SEARCHES:
        assert (await api.get(path)).status_code == 200  # the connections can be used again


UNFILTERED = [
    ("/v1/jobs", "jobs"), ("/v1/runs", "runs"), ("/v1/dead-letters", "dead_letters"), ("/v1/workers", "workers"),
    ("/v1/tasks", "workers"), ("/v1/jobs/j/runs", "run_history"), ("/v1/jobs/j/missed", "missed_fires"),
    ("/v1/tokens", "tenants"), ("/v1/tenants", "tenants"),
]  # fmt: skip


async def test_a_list_that_takes_too_long_can_be_asked_for_again(
    impatient: Assembly, api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    for path, table in UNFILTERED:
        async with locked(connection, table):
            answer = await api.get(path)
        refused = problem(answer)
        found = (path, refused["status"], refused["code"], answer.headers["retry-after"])
        assert found == (path, 503, "list_too_slow", "1")


async def test_a_choice_of_dead_letters_is_a_search_too(
    assembly: Assembly, api: httpx.AsyncClient, connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.store.pages._PLANNED", "set local statement_timeout = 50")
    for verb in ("replay", "discard"):
        async with locked(connection, "dead_letters"):
            refused = problem(await api.post(f"/v1/dead-letters:{verb}", json={"error": "a"}))
        assert (refused["status"], refused["code"], refused["field"]) == (422, "search_too_slow", "error")


LONG = [
    (f"/v1/jobs?q={'a' * 201}", "q"), (f"/v1/runs?error={'a' * 201}", "error"),
    (f"/v1/dead-letters?error={'a' * 201}", "error"), (f"/v1/jobs?owner={'a' * 1001}", "owner"),
    (f"/v1/jobs?label=a:{'a' * 1001}", "label"), (f"/v1/runs?task={'a' * 1001}", "task"),
    (f"/v1/runs?job={'a' * 1001}", "job"), (f"/v1/jobs?queue={'a' * 1001}", "queue"),
    ("/v1/runs?" + "status=failed&" * 21, "status"), ("/v1/jobs?status=" + ",".join(["paused"] * 21), "status"),
]  # fmt: skip


async def test_a_filter_that_is_too_long_is_refused(api: httpx.AsyncClient) -> None:
    for path, field in LONG:
        refused = problem(await api.get(path))
        assert (refused["status"], refused["code"], refused["field"]) == (422, "invalid_parameter", field)
        assert "at most" in refused["expected"]


async def test_a_recent_time_reads_only_recent_history(connection: asyncpg.Connection) -> None:
    days = await connection.fetchval(
        "select count(*) from pg_inherits where inhparent = 'mainspring.run_history'::regclass"
    )
    await connection.execute("set plan_cache_mode = force_custom_plan")
    tomorrow = await connection.fetchval("select now() + interval '1 day'")
    plan = await connection.fetchval(
        f"explain (format json) {load('history')['ended_runs']}",
        1, None, None, None, None, "%a%", tomorrow, *[None] * 11, 51,
    )  # fmt: skip
    scans = [node for node in nodes(msgspec.json.decode(plan)[0]["Plan"]) if "Relation Name" in node]
    assert days > 2 and len(scans) < days


# --- turns


async def test_the_searches_of_one_tenant_leave_connections_for_others(
    assembly: Assembly, api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    async with locked(connection, "jobs"):
        searches = [asyncio.create_task(api.get("/v1/jobs?q=a")) for _ in range(20)]
        await until(lambda: assembly.store.reads.get_size() - assembly.store.reads.get_idle_size() >= 2)
        assert (await api.get("/v1/runs/01a1dd6d-c346-7000-a597-000000000000")).status_code == 404
        other = TenantId(7)
        async with assembly.store.search(other) as reading:
            assert await reading.fetchval("select 1") == 1
        in_use = await connection.fetchval("select count(*) from pg_locks where not granted")
        assert in_use == 2
    assert {answer.status_code for answer in await asyncio.gather(*searches)} == {200}


async def test_searches_take_turns_by_tenant() -> None:
    searches, order, first, second = Searches(), list[int](), TenantId(1), TenantId(2)
    release = asyncio.Event()

    async def one(tenant: TenantId) -> None:
        async with searches.turn(tenant):
            order.append(tenant)
            await release.wait()

    tasks = [asyncio.create_task(one(first)) for _ in range(6)]
    await until(lambda: len(order) == 2)
    tasks += [asyncio.create_task(one(second)) for _ in range(3)]
    await until(lambda: len(order) == 3)
    given_up = asyncio.create_task(one(first))
    await asyncio.sleep(0)
    given_up.cancel()
    release.set()
    await asyncio.gather(*tasks)
    assert order[:3] == [1, 1, 2] and sorted(order) == [1] * 6 + [2] * 3
    assert order.index(2, 3) < 6 and given_up.cancelled()
    async with searches.turn(first), searches.turn(first), searches.turn(second):
        pass


async def test_too_many_that_wait_are_refused_at_once() -> None:
    searches, tenant = Searches(), TenantId(1)
    async with searches.turn(tenant), searches.turn(tenant):
        waiting = [asyncio.create_task(searches.turn(tenant).__aenter__()) for _ in range(50)]
        await asyncio.sleep(0)
        with pytest.raises(SearchesBusy):
            await searches.turn(tenant).__aenter__()
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    with pytest.raises(MainspringError) as refusal, search_in_words("jobs"):
        raise SearchesBusy
    assert refusal.value.code == "too_many_searches"
    with pytest.raises(MainspringError) as refusal, search_in_words("jobs"):
        raise SearchTooSlow(2.0)
    assert refusal.value.code == "list_too_slow"
    async with searches.turn(tenant), searches.turn(tenant):
        pass


# --- bytes


LARGE = "x" * 60_000
LISTS = {
    "/v1/runs": "insert into mainspring.run_history (run_id, tenant_id, lane_id, state, attempt, max_attempts, fence, "
    "scheduled_for, ended_at, error, payload, result) select gen_random_uuid(), 1, 1, 11, 1, 1, 1, now(), now(), $1, "
    "to_json($1), to_json($1) from generate_series(1, 100)",
    "/v1/dead-letters": "insert into mainspring.dead_letters (run_id, tenant_id, lane_id, attempts, max_attempts, "
    "scheduled_for, died_at, error, payload) select gen_random_uuid(), 1, 1, 1, 1, now(), now(), $1, to_json($1) "
    "from generate_series(1, 100)",
    "/v1/jobs": "insert into mainspring.jobs (tenant_id, job_id, lane_id, shard, status, max_attempts, one_time, "
    "id_generated, created_at, updated_at, name, schedule, payload, spec) select 1, 'j' || n, 1, 1, 1, 1, false, "
    "false, now(), now(), 'name', '{\"kind\": \"MANUAL\"}', to_json($1), json_build_object('description', $1) "
    "from generate_series(1, 100) as n",
}


async def test_a_page_of_large_rows_is_shorter(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    await api.post("/v1/jobs", json={"task": "x"})  # makes lane 1
    for path, fill in LISTS.items():
        await connection.execute(fill.replace("$1", "$1::text"), "ä" * 30_000)
        answer = await api.get(f"{path}?limit=1000")
        page = answer.json()
        [rows] = [value for value in page.values() if isinstance(value, list)]
        assert len(answer.content) < PAGE_BYTES + 300_000 and 20 < len(rows) < 100, path
        assert page["next"] is not None and "link" in answer.headers


async def test_large_fields_of_workers_are_left_out_of_lists(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await connection.execute(
        "insert into mainspring.workers (worker_id, tenant_id, name, queues, tasks, slots, labels, state) "
        "select gen_random_uuid(), 1, 'w' || n, '{default}', case when n = 1 then '{a,b}'::text[] else "
        "array(select 'task' || t from generate_series(1, 600) as t) end, 10, json_build_object('a', $1::text), 1 "
        "from generate_series(1, 1100) as n",
        LARGE,
    )
    answer = await api.get("/v1/workers")
    workers = answer.json()["workers"]
    assert len(answer.content) < PAGE_BYTES and len(workers) == 1000 and answer.json()["more"] is True
    shown = {(len(worker["tasks"]), tuple(worker["left_out"])) for worker in workers if worker["name"] != "w1"}
    assert shown == {(0, ("tasks", "labels"))}
    one: dict[str, Any] = (await api.get(f"/v1/workers/{workers[0]['worker_id']}")).json()
    assert len(one["tasks"]) == 600 and one["labels"] == {"a": LARGE} and one["left_out"] == []


async def test_tasks_and_their_schemas_are_bounded(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    await connection.execute(
        "insert into mainspring.workers (worker_id, tenant_id, name, queues, tasks, slots, labels, state) "
        "select gen_random_uuid(), 1, 'w', array(select 'q' || n from generate_series(1, 200) as n), "
        "array(select 'task' || t from generate_series(1, 200) as t), 10, '{}', 1"
    )
    await connection.execute(
        "insert into mainspring.task_signatures (tenant_id, task, schema, registered_at) "
        "select 1, 'task' || n, json_build_object('title', $1::text), now() from generate_series(1, 200) as n",
        LARGE,
    )
    answer = await api.get("/v1/tasks")
    tasks = answer.json()["tasks"]
    assert len(answer.content) < PAGE_BYTES + 500_000 and len(tasks) == 200
    assert {len(task["queues"]) for task in tasks} == {100}
    whole = [task for task in tasks if not task["left_out"]]
    assert 60 < len(whole) < 80 and all(task["payload_schema"]["title"] == LARGE for task in whole)


async def test_a_timeline_has_the_newest_1000_attempts_and_1_mib_of_errors(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    run_id = (await api.post("/v1/jobs", json={"task": "x"})).json()["job_id"]
    await connection.execute(
        "insert into mainspring.attempts (run_id, attempt, fence, worker_id, outcome, started_at, ended_at, error) "
        "select $1::uuid, 1 + n / 100, n, gen_random_uuid(), 'FAILED', now() + n * interval '1 second', "
        "now() + n * interval '1 second', $2 from generate_series(1, 1500) as n",
        run_id,
        LARGE,
    )
    answer = await api.get(f"/v1/runs/{run_id}/timeline")
    entries = answer.json()
    assert len(answer.content) < PAGE_BYTES
    assert [entry["reason"] for entry in entries if entry["state"] == "LEFT_OUT"] == ["500 earlier attempts"]
    errors = [entry["error"] for entry in entries if entry["state"] == "FAILED"]
    assert len(errors) == 1000 and errors[-1] == LARGE
    assert errors[0] == "x" * 1000 + " [the rest is left out]"
