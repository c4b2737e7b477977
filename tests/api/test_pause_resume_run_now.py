"""FEATURES 1.2: pause, resume and run-now; the upcoming and the missed fires of a job."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.roles.assembly import Assembly
from tests.api.bookkeeping import problem
from tests.operations.firing import fire_due, make_due
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio


async def make(api: httpx.AsyncClient, **fields: Any) -> str:
    answer = await api.post("/v1/jobs", json={"task": "noop", **fields})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["job_id"])


async def pause_since(connection: asyncpg.Connection, job_id: str, moment: datetime) -> None:
    """Set the first fire that the pause held back to `moment`, as if the job had been paused for a long time."""
    await connection.execute("update mainspring.jobs set paused_from = $2 where job_id = $1", job_id, moment)


async def test_a_paused_job_does_not_fire_and_a_resumed_one_does(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    job_id = await make(api, schedule={"at": "2020-01-01T00:00:00Z"})
    paused = await api.post(f"/v1/jobs/{job_id}:pause")
    assert (paused.status_code, paused.json()["status"], paused.json()["next_fire_at"]) == (200, "PAUSED", None)
    assert (await api.post(f"/v1/jobs/{job_id}:pause")).json() == paused.json(), "a second time changes nothing"
    assert await fire_due(assembly, connection) == 0
    resumed = (await api.post(f"/v1/jobs/{job_id}:resume")).json()
    assert (resumed["status"], resumed["next_fire_at"]) == ("SCHEDULED", "2020-01-01T00:00:00Z")
    assert (await api.post(f"/v1/jobs/{job_id}:resume")).json() == resumed
    assert await fire_due(assembly, connection) == 1


async def test_resume_records_the_fires_of_the_pause_as_missed(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    job_id = await make(api, schedule={"every": "10m", "anchor": "2026-01-01T00:00:00Z"})
    await api.post(f"/v1/jobs/{job_id}:pause")
    assert (await api.get(f"/v1/jobs/{job_id}/missed")).json() == []
    next_fire = datetime.fromisoformat((await api.get(f"/v1/jobs/{job_id}/upcoming?n=1")).json()["fires"][0])
    first = next_fire - timedelta(hours=3)
    await pause_since(connection, job_id, first)
    resumed = (await api.post(f"/v1/jobs/{job_id}:resume")).json()
    [missed] = (await api.get(f"/v1/jobs/{job_id}/missed")).json()
    after = datetime.fromisoformat(resumed["next_fire_at"])
    assert datetime.fromisoformat(missed["first"]) == first
    assert datetime.fromisoformat(missed["last"]) == after - timedelta(minutes=10)
    assert missed["count"] == (after - first) / timedelta(minutes=10)
    assert missed["reason"] == "paused"


async def test_the_missed_of_each_pause_are_a_range_and_the_newest_come_first(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    newest = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=30)
    anchor = newest - timedelta(hours=20_000)
    job_id = await make(api, schedule={"every": "1h", "anchor": anchor.isoformat()})
    for hours in (10_000, 50):
        await api.post(f"/v1/jobs/{job_id}:pause")
        await pause_since(connection, job_id, newest - timedelta(hours=hours))
        assert (await api.post(f"/v1/jobs/{job_id}:resume")).status_code == 200
    newer, older = (await api.get(f"/v1/jobs/{job_id}/missed")).json()
    for missed, hours in ((older, 10_000), (newer, 50)):
        first, last = datetime.fromisoformat(missed["first"]), datetime.fromisoformat(missed["last"])
        assert (first, last) == (newest - timedelta(hours=hours), newest)
        assert missed["count"] == hours + 1
    assert len((await api.get(f"/v1/jobs/{job_id}/missed?limit=1")).json()) == 1


@pytest.mark.parametrize(
    "schedule", [{"every": 1, "anchor": "2020-01-01T00:00:00Z"}, {"cron": "* * * * * *", "timezone": "Europe/Berlin"}]
)
async def test_a_job_of_every_second_is_resumed_after_a_year_at_once(
    api: httpx.AsyncClient, connection: asyncpg.Connection, schedule: dict[str, object]
) -> None:
    job_id = await make(api, schedule=schedule)
    await api.post(f"/v1/jobs/{job_id}:pause")
    first = datetime.now(UTC).replace(microsecond=0) - timedelta(days=365)
    await pause_since(connection, job_id, first)
    began = time.process_time()
    resumed = (await api.post(f"/v1/jobs/{job_id}:resume")).json()
    assert time.process_time() - began < 1.0, "31 million steps take minutes"
    missed, *_ = (await api.get(f"/v1/jobs/{job_id}/missed")).json()
    following = datetime.fromisoformat(resumed["next_fire_at"])
    assert datetime.fromisoformat(missed["first"]) == first
    assert datetime.fromisoformat(missed["last"]) == following - timedelta(seconds=1)
    assert missed["count"] == (following - first) // timedelta(seconds=1)


async def test_a_pause_in_which_nothing_was_due_misses_nothing(api: httpx.AsyncClient) -> None:
    job_id = await make(api, schedule="0 0 1 1 *")
    before = (await api.get(f"/v1/jobs/{job_id}")).json()["next_fire_at"]
    await api.post(f"/v1/jobs/{job_id}:pause")
    assert (await api.post(f"/v1/jobs/{job_id}:resume")).json()["next_fire_at"] == before
    assert (await api.get(f"/v1/jobs/{job_id}/missed")).json() == []


async def test_a_change_of_schedule_in_a_pause_holds_when_it_is_resumed(api: httpx.AsyncClient) -> None:
    job_id = await make(api, schedule="@daily")
    await api.post(f"/v1/jobs/{job_id}:pause")
    changed = (await api.patch(f"/v1/jobs/{job_id}", json={"schedule": "0 0 1 1 *"})).json()
    assert (changed["status"], changed["next_fire_at"]) == ("PAUSED", None)
    resumed = (await api.post(f"/v1/jobs/{job_id}:resume")).json()
    assert resumed["next_fire_at"][4:] == "-01-01T00:00:00Z"


async def test_run_now_answers_202_with_the_run_by_verb_and_by_path(api: httpx.AsyncClient) -> None:
    for suffix in (":runNow", "/runNow"):
        job_id = await make(api, schedule="@daily", payload={"a": 1})
        answer = await api.post(f"/v1/jobs/{job_id}{suffix}")
        assert answer.status_code == 202
        assert answer.json()["job_id"] == job_id
        run = (await api.get(f"/v1/runs/{answer.json()['run_id']}")).json()
        assert (run["job_id"], run["status"], run["payload"]) == (job_id, "QUEUED", {"a": 1})
        assert run["trigger"] == f"manual:{run['run_id']}"


async def test_run_now_works_on_a_paused_and_on_a_manual_job_and_leaves_the_schedule_alone(
    api: httpx.AsyncClient,
) -> None:
    for schedule in ("@daily", "manual", {"at": "2099-01-01T00:00:00Z"}):
        job_id = await make(api, schedule=schedule)
        await api.post(f"/v1/jobs/{job_id}:pause")
        before = (await api.get(f"/v1/jobs/{job_id}")).json()
        ran = await api.post(f"/v1/jobs/{job_id}:runNow")
        assert ran.status_code == 202
        after = (await api.get(f"/v1/jobs/{job_id}")).json()
        assert after == {**before, "latest_run": after["latest_run"]}
        assert (before["latest_run"], after["latest_run"]["run_id"]) == (None, ran.json()["run_id"])


async def test_run_now_on_a_cancelled_job_is_refused(api: httpx.AsyncClient) -> None:
    job_id = await make(api, schedule="@daily")
    await api.delete(f"/v1/jobs/{job_id}")
    for suffix in (":runNow", "/runNow"):
        refused = problem(await api.post(f"/v1/jobs/{job_id}{suffix}"))
        assert (refused["status"], refused["code"]) == (409, "job_cancelled")
    assert (await api.get(f"/v1/jobs/{job_id}/runs")).json() == []


async def test_a_run_now_beside_a_live_run_is_skipped_with_its_reason_unless_overlap_is_allowed(
    api: httpx.AsyncClient,
) -> None:
    job_id = await make(api, schedule="@daily")
    answers = await asyncio.gather(*(api.post(f"/v1/jobs/{job_id}:runNow") for _ in range(8)))
    assert {answer.status_code for answer in answers} == {202}
    runs = [(await api.get(f"/v1/runs/{answer.json()['run_id']}")).json() for answer in answers]
    assert sorted(run["status"] for run in runs) == ["QUEUED"] + ["SKIPPED"] * 7
    reasons = {run["reason"] for run in runs if run["status"] == "SKIPPED"}
    assert reasons == {"overlap: an earlier run of this job was still alive"}
    allowed = await make(api, schedule="@daily", overlap="allow")
    await asyncio.gather(*(api.post(f"/v1/jobs/{allowed}:runNow") for _ in range(4)))
    assert [run["status"] for run in (await api.get(f"/v1/jobs/{allowed}/runs")).json()] == ["QUEUED"] * 4


async def test_an_unknown_verb_is_404_and_names_those_there_are(api: httpx.AsyncClient) -> None:
    job_id = await make(api, schedule="@daily")
    for url in (f"/v1/jobs/{job_id}:explode", f"/v1/jobs/{job_id}/explode"):
        refused = problem(await api.post(url))
        assert (refused["status"], refused["code"]) == (404, "no_such_route")
        assert ":runNow" in refused["hint"]
    refused = problem(await api.post(f"/v1/jobs/{job_id}"))
    assert (refused["status"], refused["code"]) == (405, "method_not_allowed")
    assert ":runNow" in refused["hint"]


async def test_status_shows_the_latest_run(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    job_id = await make(api, schedule="@daily")
    assert (await api.get(f"/v1/jobs/{job_id}/status")).json() == {
        "job_id": job_id, "status": "SCHEDULED", "latest_run": None, "error_message": None,
    }  # fmt: skip
    worker = HandWorker(api)
    for _ in range(2):
        await make_due(connection, job_id)
        assert await fire_due(assembly, connection) == 1
        [order] = await worker.claim()
        await worker.report(outcome(order))
    status = (await api.get(f"/v1/jobs/{job_id}/status")).json()
    assert (status["latest_run"]["run_id"], status["latest_run"]["status"]) == (str(order.run_id), "SUCCESS")


async def test_the_latest_run_of_a_one_time_job_is_its_fire_not_an_earlier_one_by_hand(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    at = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    job_id = await make(api, schedule={"at": at}, overlap="allow")
    await api.post(f"/v1/jobs/{job_id}:runNow")
    soon = await connection.fetchval(
        "update mainspring.jobs set next_fire_at = clock_timestamp() returning next_fire_at"
    )
    assert await fire_due(assembly, connection) == 1
    latest = (await api.get(f"/v1/jobs/{job_id}/status")).json()["latest_run"]
    assert (latest["run_id"], datetime.fromisoformat(latest["scheduled_for"])) == (job_id, soon)


async def test_upcoming_lists_the_next_fires(api: httpx.AsyncClient) -> None:
    before = datetime.now(UTC)
    job_id = await make(api, schedule={"cron": "0 9 * * MON-FRI", "timezone": "Europe/Berlin"})
    fires = [datetime.fromisoformat(text) for text in (await api.get(f"/v1/jobs/{job_id}/upcoming")).json()["fires"]]
    assert len(fires) == 20
    assert fires == sorted(set(fires)) and fires[0] > before
    assert {moment.weekday() for moment in fires} == {0, 1, 2, 3, 4}
    assert (await api.get(f"/v1/jobs/{job_id}")).json()["next_fire_at"] == fires[0].isoformat().replace("+00:00", "Z")
    assert len((await api.get(f"/v1/jobs/{job_id}/upcoming?n=1000")).json()["fires"]) == 1000
    for schedule, count in (({"at": "2099-01-01T00:00:00Z"}, 1), ("manual", 0)):
        other = await make(api, schedule=schedule)
        assert len((await api.get(f"/v1/jobs/{other}/upcoming?n=5")).json()["fires"]) == count


async def test_upcoming_of_a_paused_job_is_what_it_would_do_if_it_were_resumed_now(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    job_id = await make(api, schedule="*/5 * * * *")
    await api.post(f"/v1/jobs/{job_id}:pause")
    await pause_since(connection, job_id, datetime(2026, 1, 1, tzinfo=UTC))
    fires = (await api.get(f"/v1/jobs/{job_id}/upcoming?n=2")).json()["fires"]
    assert datetime.fromisoformat(fires[0]) > datetime.now(UTC) - timedelta(minutes=1)
    assert datetime.fromisoformat(fires[1]) - datetime.fromisoformat(fires[0]) == timedelta(minutes=5)
