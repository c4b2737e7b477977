"""A time that has passed: a job with it runs at once, whichever request sets it, and its start lag counts from then."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.roles.assembly import Assembly
from mainspring.store.pool import Store
from tests.api.test_insights import folded
from tests.operations.firing import fire_due
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio

PAST = "2020-01-01T00:00:00Z"
EARLIER = "2019-01-01T00:00:00Z"
WAYS: list[dict[str, Any]] = [{"schedule_time": PAST}, {"schedule": {"at": PAST}}]
BEFORE: list[Any] = ["0 3 * * *", {"every": "1h"}, {"at": "2099-01-01T00:00:00Z"}, "manual"]


async def make(api: httpx.AsyncClient, **fields: Any) -> str:
    answer = await api.post("/v1/jobs", json={"task": "noop", **fields})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["job_id"])


async def change(api: httpx.AsyncClient, job_id: str, method: str = "PUT", **fields: Any) -> dict[str, Any]:
    answer = await api.request(method, f"/v1/jobs/{job_id}", json=fields)
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


async def runs_of(api: httpx.AsyncClient, job_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await api.get(f"/v1/jobs/{job_id}/runs")).json()
    return found


def is_recent(text: str) -> bool:
    return abs(datetime.fromisoformat(text) - datetime.now(UTC)) < timedelta(minutes=2)


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
@pytest.mark.parametrize("before", BEFORE, ids=str)
@pytest.mark.parametrize("chosen", [{}, {"job_id": "mine"}], ids=["generated", "chosen"])
async def test_a_past_time_fires_once_for_the_time_of_the_change(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, method: str, before: Any,
    chosen: dict[str, str],
) -> None:  # fmt: skip
    for number, way in enumerate(WAYS):
        job_id = await make(api, schedule=before, **({"job_id": f"mine{number}"} if chosen else {}))
        changed = await change(api, job_id, method, **way)
        assert (changed["schedule_type"], changed["schedule_time"]) == ("FUTURE", PAST)
        assert is_recent(changed["next_fire_at"]) and changed["next_fire_at"] <= changed["updated_at"]
        assert await fire_due(assembly, connection) == 1
        [run] = await runs_of(api, job_id)
        assert run["scheduled_for"] == changed["next_fire_at"]
        fired = (await api.get(f"/v1/jobs/{job_id}")).json()
        assert (fired["schedule_type"], fired["schedule_time"]) == ("FUTURE", PAST), "the requested time is kept"
        assert await fire_due(assembly, connection) == 0


async def test_a_repeat_of_the_same_change_changes_nothing(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    for chosen in ({}, {"job_id": "mine"}):
        job_id = await make(api, schedule="@daily", owner="bi", concurrency={"limit": 1, "per": "task"}, **chosen)
        first = await change(api, job_id, schedule_time=PAST)
        stored = await connection.fetchrow("select * from mainspring.jobs where job_id = $1", job_id)
        for method in ("PUT", "PATCH", "PUT"):
            again = await change(api, job_id, method, schedule_time=PAST)
            assert again == {name: first[name] for name in first if name != "warnings"}
        assert await connection.fetchrow("select * from mainspring.jobs where job_id = $1", job_id) == stored
        assert await fire_due(assembly, connection) == 1
        fired = (await api.get(f"/v1/jobs/{job_id}")).json()
        for method in ("PUT", "PATCH"):
            again = await change(api, job_id, method, schedule_time=PAST)
            moving = ("latest_run", "updated_at")
            assert {name: again[name] for name in fired if name not in moving} == {
                name: fired[name] for name in fired if name not in moving
            }
        assert await fire_due(assembly, connection) == 0
        assert len(await runs_of(api, job_id)) == 1


@pytest.mark.parametrize("schedule", ["now", {"at": PAST}], ids=str)
async def test_a_one_time_job_that_has_fired_is_not_changed(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, schedule: Any
) -> None:
    for chosen in ({}, {"job_id": "mine"}):
        job_id = await make(api, schedule=schedule, **chosen)
        await fire_due(assembly, connection)
        for body in ({"schedule_time": EARLIER}, {"schedule": {"at": EARLIER}}, {"owner": "x"}, {"schedule": "@daily"}):
            for method in ("PUT", "PATCH"):
                refused = await api.request(method, f"/v1/jobs/{job_id}", json=body)
                assert (refused.status_code, refused.json()["code"]) == (409, "already_fired"), body
        assert len(await runs_of(api, job_id)) == 1


async def test_the_time_of_the_change_counts_for_a_misfire_policy(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    job_id = await make(api, schedule="@daily", misfire={"policy": "skip"})
    await change(api, job_id, schedule_time=PAST)
    assert await fire_due(assembly, connection) == 1
    # One that was missed has not fired: the same time fires it.
    missed = await make(api, schedule={"at": PAST}, misfire={"policy": "skip"})
    await fire_due(assembly, connection)
    assert (await api.get(f"/v1/jobs/{missed}")).json()["status"] == "FAILED"
    await change(api, missed, description="nothing but this")
    assert await fire_due(assembly, connection) == 0
    await change(api, missed, schedule_time=PAST)
    assert await fire_due(assembly, connection) == 1


async def test_a_past_time_of_a_paused_job_waits_for_its_resume(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    job_id = await make(api, schedule="@daily")
    await api.post(f"/v1/jobs/{job_id}:pause")
    changed = await change(api, job_id, schedule_time=PAST)
    assert (changed["status"], changed["schedule_time"]) == ("PAUSED", PAST)
    assert await fire_due(assembly, connection) == 0
    await api.post(f"/v1/jobs/{job_id}:resume")
    assert await fire_due(assembly, connection) == 1
    [run] = await runs_of(api, job_id)
    assert is_recent(run["scheduled_for"])


async def test_a_later_change_forgets_the_requested_time(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    job_id = await make(api, schedule="@daily")
    await api.post(f"/v1/jobs/{job_id}:pause")
    await change(api, job_id, schedule_time=PAST)
    moved = await change(api, job_id, schedule_time="2099-01-01T00:00:00Z")
    assert moved["schedule_time"] == "2099-01-01T00:00:00Z"
    await api.post(f"/v1/jobs/{job_id}:resume")
    soon = (await change(api, job_id, schedule="now"))["schedule_time"]
    assert await fire_due(assembly, connection) == 1
    assert (await api.get(f"/v1/jobs/{job_id}")).json()["schedule_time"] == soon


@pytest.mark.parametrize("before", ["0 3 * * *", {"every": "1h"}, {"rrule": "FREQ=DAILY"}], ids=str)
async def test_a_change_of_a_recurring_job_to_one_time_says_so(api: httpx.AsyncClient, before: Any) -> None:
    for body in ({"schedule_time": PAST}, {"schedule": {"at": "2099-01-01T00:00:00Z"}}, {"schedule": "now"},
                 {"delay": "1h"}):  # fmt: skip
        job_id = await make(api, schedule=before)
        [warning] = (await change(api, job_id, **body))["warnings"]
        assert "recurring" in warning and "once" in warning
    job_id = await make(api, schedule=before)
    assert (await change(api, job_id, owner="x")).get("warnings") is None
    assert (await change(api, job_id, schedule="@weekly")).get("warnings") is None
    once = await make(api, schedule={"at": "2099-01-01T00:00:00Z"})
    assert (await change(api, once, schedule_time=PAST)).get("warnings") is None


async def test_a_workflow_takes_a_past_time_too(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    steps = [{"name": "a", "task": "noop"}]
    body = {"workflow_id": "flow", "schedule": "@daily", "steps": steps}
    assert (await api.post("/v1/workflows", json=body)).status_code == 201
    changed = await api.put("/v1/workflows/flow", json={"schedule": {"at": PAST}})
    assert changed.status_code == 200, changed.text
    assert "recurring" in changed.json()["warnings"][0]
    assert (await api.put("/v1/workflows/flow", json={"schedule": {"at": PAST}})).json().get("warnings") is None
    assert await fire_due(assembly, connection) >= 1
    [run] = await runs_of(api, "flow")
    assert is_recent(run["scheduled_for"])
    assert (await api.put("/v1/workflows/flow", json={"schedule": {"at": PAST}})).status_code == 200
    assert (await api.put("/v1/workflows/flow", json={"schedule": {"at": EARLIER}})).status_code == 409
    assert len(await runs_of(api, "flow")) == 1


async def lags(api: httpx.AsyncClient, job_id: str) -> list[float]:
    series = (await api.get(f"/v1/jobs/{job_id}/series?w=1h")).json()
    return [bar["lag"] for bar in series["runs"]]


async def run_all(api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection) -> None:
    created = await fire_due(assembly, connection)
    worker = HandWorker(api)
    await worker.report(*[outcome(order) for order in await worker.claim(created)])


@pytest.mark.parametrize("chosen", [{}, {"job_id": "mine"}], ids=["generated", "chosen"])
async def test_the_lag_of_a_job_with_a_past_time_counts_from_its_creation(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, store: Store, chosen: dict[str, str]
) -> None:
    job_id = await make(api, schedule={"at": PAST}, **chosen)
    await run_all(api, assembly, connection)
    [run] = await runs_of(api, job_id)
    assert run["scheduled_for"] == PAST and is_recent(run["lag_from"])
    [lag] = await lags(api, job_id)
    assert 0 <= lag < 60
    await folded(store, connection)
    totals = (await api.get("/v1/insights/overview?w=1h")).json()["window"]["totals"]
    assert totals["lag_p99"] < 60
    text = (await api.get("/metrics")).text
    [total] = [line for line in text.splitlines() if line.startswith("mainspring_task_start_lag_seconds_sum")]
    assert float(total.split()[-1]) < 60


async def test_the_lag_of_a_retried_run_with_a_past_time_counts_from_its_creation(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, store: Store
) -> None:
    for job_id in (None, "mine"):
        await make(api, schedule={"at": PAST}, max_retries=2, **({} if job_id is None else {"job_id": job_id}))
    await fire_due(assembly, connection)
    worker = HandWorker(api)
    await worker.report(*[outcome(order, "FAILED", error="no") for order in await worker.claim(2)])
    await folded(store, connection)
    totals = (await api.get("/v1/insights/overview?w=1h")).json()["window"]["totals"]
    assert totals["retried"] == 2 and totals["lag_p99"] < 60


async def test_a_late_fire_of_an_existing_schedule_counts_in_full(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, store: Store
) -> None:
    """Jobs from a week ago that were to fire an hour ago."""
    far = (await connection.fetchval("select clock_timestamp()") + timedelta(hours=12)).hour  # not within that hour
    made = [
        await make(api, schedule={"at": "2099-01-01T00:00:00Z"}),
        await make(api, job_id="once", schedule={"at": "2099-01-01T00:00:00Z"}),
        await make(api, job_id="again", schedule=f"0 {far} * * *"),
    ]
    await connection.execute(
        """update mainspring.jobs set next_fire_at = clock_timestamp() - interval '1 hour',
                                      created_at = clock_timestamp() - interval '7 days'"""
    )
    await connection.execute("update mainspring.taken_ids set taken_at = clock_timestamp() - interval '7 days'")
    old = "00000000-0000-7000-8000-000000000001"  # an id of 1970
    await connection.execute("update mainspring.jobs set job_id = $1 where job_id = $2", old, made[0])
    await run_all(api, assembly, connection)
    for job_id in (old, "once", "again"):
        [run] = await runs_of(api, job_id)
        assert run["lag_from"] == run["scheduled_for"], job_id
        [lag] = await lags(api, job_id)
        assert 3600 <= lag < 3720, job_id


async def test_a_replay_counts_from_its_creation(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    job_id = await make(api, job_id="mine", schedule={"at": PAST}, max_retries=0)
    await fire_due(assembly, connection)
    worker = HandWorker(api)
    [order] = await worker.claim()
    await worker.report(outcome(order, "FAILED", error="no"))
    again = (await api.post(f"/v1/runs/{order.run_id}:retry")).json()
    [second] = await worker.claim()
    await worker.report(outcome(second))
    run = (await api.get(f"/v1/runs/{again['run_id']}")).json()
    assert run["scheduled_for"] == PAST and run["lag_from"] == run["created_at"]
    rows = (await api.get(f"/v1/jobs/{job_id}/runs?view=row")).json()
    assert rows[0]["lag_from"] == run["created_at"]
    assert max(await lags(api, job_id)) < 60


async def test_a_job_with_a_past_time_is_not_late_before_it_was_created(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    await make(api, schedule={"at": PAST})
    assert assembly.node is not None
    await assembly.node.leaser.run_once(connection)
    shown = (await api.get("/v1/insights/overview")).json()
    assert shown["fire_lag"] < 60 and not any("years" in text or "d and has" in text for text in shown["problems"])
    before = (await api.get("/metrics")).text
    await fire_due(assembly, connection)
    after = (await api.get("/metrics")).text

    def total(text: str) -> float:
        [line] = [line for line in text.splitlines() if line.startswith("mainspring_fire_lag_seconds_sum")]
        return float(line.split()[-1])

    assert total(after) - total(before) < 60
