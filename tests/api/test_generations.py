"""FEATURES 1.1: a job that is created with the id of an ended one is the next generation of it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.domain.run_key import key_of
from mainspring.domain.schedules.misfire import FirePlan
from mainspring.operations.lifecycle.fire import fire_recurring
from mainspring.roles.assembly import Assembly
from mainspring.store.fires import DueAgain
from tests.api.bookkeeping import problem, rows
from tests.operations.firing import fire_due, make_due
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio

PAST = {"at": "2020-01-01T00:00:00Z"}
FUTURE = {"at": "2099-01-01T00:00:00Z"}


async def create(api: httpx.AsyncClient, schedule: Any = "now", **fields: Any) -> httpx.Response:
    return await api.post("/v1/jobs", json={"job_id": "mine", "task": "noop", "schedule": schedule, **fields})


async def made(api: httpx.AsyncClient, schedule: Any = "now", **fields: Any) -> int:
    answer = await create(api, schedule, **fields)
    assert answer.status_code == 201, answer.text
    generation: int = answer.json().get("generation", 1)
    return generation


async def finish(api: httpx.AsyncClient, status: str = "SUCCESS") -> Any:
    """Run the only run that waits."""
    worker = HandWorker(api)
    [order] = await worker.claim()
    await worker.report(outcome(order, status, retry=False) if status == "FAILED" else outcome(order, status))
    return order


async def job(api: httpx.AsyncClient, **query: Any) -> dict[str, Any]:
    shown: dict[str, Any] = (await api.get("/v1/jobs/mine", params=query)).json()
    return shown


async def runs(api: httpx.AsyncClient, **query: Any) -> list[tuple[int, str]]:
    listed = (await api.get("/v1/jobs/mine/runs", params=query)).json()
    return [(run["generation"], run["status"]) for run in listed]


@pytest.mark.parametrize("schedule", ["now", PAST])
async def test_a_one_time_job_that_has_ended_can_be_created_again(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, schedule: Any
) -> None:
    """Its id is taken from the submission to the end of its run."""
    for generation in (1, 2, 3):
        assert await made(api, schedule) == generation
        assert (await create(api, schedule)).status_code == 409
        await fire_due(assembly, connection)
        assert (await create(api, schedule)).status_code == 409, "while it is queued"
        worker = HandWorker(api)
        [order] = await worker.claim()
        assert order.generation == generation
        refused = problem(await create(api, schedule))
        assert (refused["status"], refused["code"], refused["field"]) == (409, "job_exists", "job_id")
        assert str(order.run_id) in refused["detail"], "while it runs"
        await worker.report(outcome(order))
    assert await runs(api) == [(3, "SUCCESS"), (2, "SUCCESS"), (1, "SUCCESS")]
    assert await runs(api, generation=2) == [(2, "SUCCESS")]
    assert await runs(api, generation=4) == []
    found = (await api.get("/v1/runs", params={"job": "mine", "generation": 1})).json()["runs"]
    assert [run["generation"] for run in found] == [1]
    assert (await job(api))["generation"] == 3
    assert (await job(api, generation=1))["generation"] == 1


async def test_while_it_backs_off_it_is_alive(api: httpx.AsyncClient) -> None:
    await made(api, max_retries=3)
    worker = HandWorker(api)
    [order] = await worker.claim()
    await worker.report(outcome(order, "FAILED"))
    assert (await create(api)).status_code == 409
    assert (await api.delete("/v1/jobs/mine")).status_code == 200
    assert await made(api) == 2
    assert await runs(api) == [(2, "QUEUED"), (1, "CANCELLED")]


@pytest.mark.parametrize("before", ["@daily", "manual", FUTURE])
@pytest.mark.parametrize("after", ["@hourly", "manual", FUTURE, "now"])
async def test_a_cancelled_job_can_be_created_again_as_any_kind(
    api: httpx.AsyncClient, connection: asyncpg.Connection, before: Any, after: Any
) -> None:
    await made(api, before, owner="me", payload={"n": 1})
    cancelled = (await api.delete("/v1/jobs/mine")).json()
    assert await made(api, after) == 2
    new = await job(api)
    assert (new["generation"], new["owner"], new["payload"], new["status"]) == (2, None, None, "SCHEDULED")
    if after != "now":
        assert new["version"] > cancelled["version"], "a change that was prepared for the old job does not match"
    assert await job(api, generation=1) == cancelled, "as it was"
    stored = await rows(connection)
    assert stored["jobs"] + stored["runs"] == 1
    missing = problem(await api.get("/v1/jobs/mine", params={"generation": 3}))
    assert (missing["status"], missing["field"]) == (404, "generation")


async def test_a_completed_recurring_job_can_be_created_again(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await made(api, "@daily")
    await connection.execute("update mainspring.jobs set status = 4, next_fire_at = null")
    assert await made(api, "@daily") == 2
    assert (await job(api, generation=1))["status"] == "COMPLETED"


async def test_the_first_answer_has_no_generation_and_later_ones_have_it(api: httpx.AsyncClient) -> None:
    assert "generation" not in (await create(api, "@daily")).json()
    await api.delete("/v1/jobs/mine")
    assert (await create(api, "@daily")).json()["generation"] == 2


async def test_the_key_of_an_old_submission_answers_with_the_old_generation(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    for generation in (1, 2, 3):
        assert await made(api, idempotency_key=f"key-{generation}") == generation
        await finish(api)
    stored = await rows(connection)
    for generation in (1, 2, 3):
        again = await create(api, idempotency_key=f"key-{generation}")
        assert (again.status_code, again.json().get("generation", 1)) == (200, generation)
    batch = [{"job_id": "mine", "task": "noop", "schedule": "now", "idempotency_key": "key-2"}]
    assert (await api.post("/v1/jobs:batch", json=batch)).status_code == 201
    assert await rows(connection) == stored
    other = problem(await create(api, "@daily", idempotency_key="key-1"))
    assert (other["status"], other["code"]) == (409, "idempotency_key_reused")


async def test_a_refused_create_keeps_no_key(api: httpx.AsyncClient) -> None:
    await made(api, "@daily")
    assert (await create(api, idempotency_key="later")).status_code == 409
    await api.delete("/v1/jobs/mine")
    answer = await create(api, idempotency_key="later")
    assert (answer.status_code, answer.json()["generation"]) == (201, 2)


async def test_a_batch_creates_new_and_old_ids_or_nothing(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    bodies = [{"job_id": f"job-{n}", "task": "noop", "schedule": s} for n, s in enumerate(("@daily", "now", "@daily"))]
    assert (await api.post("/v1/jobs:batch", json=bodies)).status_code == 201
    await api.delete("/v1/jobs/job-0")
    await api.delete("/v1/jobs/job-1")
    stored = await rows(connection)
    refused = problem(await api.post("/v1/jobs:batch", json=bodies))
    assert (refused["status"], refused["errors"][0]["field"]) == (409, "jobs[2].job_id")
    assert await rows(connection) == stored
    await api.delete("/v1/jobs/job-2")
    assert (await api.post("/v1/jobs:batch", json=[*bodies, {"task": "noop"}])).status_code == 201
    for job_id in ("job-0", "job-1", "job-2"):
        assert (await api.get(f"/v1/jobs/{job_id}")).json()["generation"] == 2


async def test_the_same_fire_time_in_two_generations_has_two_keys(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    keys = []
    for _ in range(2):
        await made(api, PAST)
        await fire_due(assembly, connection)
        order = await finish(api)
        keys.append(key_of(order))
    assert keys == ["mine/2020-01-01T00:00:00Z", "mine/2/2020-01-01T00:00:00Z"]


async def test_a_version_of_an_earlier_generation_does_not_match(api: httpx.AsyncClient) -> None:
    await made(api, "@daily")
    seen = (await api.get("/v1/jobs/mine")).headers["ETag"]
    await api.delete("/v1/jobs/mine")
    await made(api, "@daily")
    refused = await api.patch("/v1/jobs/mine", json={"owner": "x"}, headers={"If-Match": seen})
    assert refused.status_code == 412
    await api.delete("/v1/jobs/mine")
    await made(api)
    await finish(api)
    seen = (await api.get("/v1/jobs/mine")).headers["ETag"]
    await made(api, "@daily")
    refused = await api.patch("/v1/jobs/mine", json={"owner": "x"}, headers={"If-Match": seen})
    assert refused.status_code == 412


async def test_a_fire_that_was_prepared_for_an_earlier_generation_does_not_happen(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    """Even if version and fire time are the same by chance."""
    node = assembly.node
    assert node is not None
    await made(api, {"every": "1h"}, overlap="allow")
    await make_due(connection, "mine")
    await node.leaser.run_once(connection)
    await node.loader.run_once()
    prepared = node._wheel.advance(node._clock.timestamp() + 1)
    due, version = await connection.fetchrow("select next_fire_at, version from mainspring.jobs")
    assert len(prepared) == 1
    await api.delete("/v1/jobs/mine")
    await made(api, {"every": "2h"}, overlap="allow")
    await connection.execute("update mainspring.jobs set next_fire_at = $1, version = $2", due, version)
    [old] = prepared
    plan = FirePlan([due], [], due, due + timedelta(hours=1))
    leases = dict(await connection.fetch("select shard, epoch from mainspring.shard_leases"))

    async def fired(generation: int) -> list[int]:
        planned = DueAgain(old.tenant_id, old.job_id, version, due, plan, generation)
        return (await fire_recurring(connection, node.node_id, leases, [planned], overlap=False)).moved

    assert await fired(old.generation) == []
    assert await fired(2) == [0]


async def test_resume_revives_a_cancelled_recurring_job_from_now_on(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    await made(api, {"every": "10s"})
    await api.delete("/v1/jobs/mine")
    await connection.execute("update mainspring.jobs set updated_at = updated_at - interval '1 minute'")
    await connection.execute(
        "update mainspring.jobs set schedule = jsonb_set(schedule::jsonb, '{anchor}', to_jsonb(to_char("
        "(updated_at - interval '5 s') at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')))::json"
    )
    revived = (await api.post("/v1/jobs/mine:resume")).json()
    assert (revived["status"], revived["generation"]) == ("SCHEDULED", 1)
    assert datetime.fromisoformat(revived["next_fire_at"]) > datetime.now(UTC)
    assert await fire_due(assembly, connection) == 0
    [gap] = (await api.get("/v1/jobs/mine/missed")).json()
    assert (gap["count"], gap["reason"], gap["generation"]) == (6, "cancelled", 1)
    assert (await api.post("/v1/jobs/mine:resume")).json() == revived, "a second time changes nothing"
    await make_due(connection, "mine")
    assert await fire_due(assembly, connection) == 1


async def test_a_cancelled_manual_job_is_revived_too_and_a_one_time_job_is_not(api: httpx.AsyncClient) -> None:
    await made(api, "manual")
    await api.delete("/v1/jobs/mine")
    assert (await api.post("/v1/jobs/mine:resume")).json()["status"] == "SCHEDULED"
    assert (await api.post("/v1/jobs/mine:runNow")).status_code == 202
    await api.delete("/v1/jobs/mine")
    await made(api, FUTURE)
    await api.delete("/v1/jobs/mine")
    refused = problem(await api.post("/v1/jobs/mine:resume"))
    assert (refused["status"], refused["code"]) == (409, "not_paused")
    assert "POST /v1/jobs" in refused["hint"]


async def test_a_replay_stays_in_its_generation_and_obeys_the_newest_one(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    await made(api, PAST)
    await fire_due(assembly, connection)
    first = await finish(api, "FAILED")
    await made(api, "@daily")  # overlap: skip
    again = (await api.post(f"/v1/runs/{first.run_id}:retry")).json()
    assert (again["generation"], again["scheduled_for"]) == (1, "2020-01-01T00:00:00Z")
    await make_due(connection, "mine")
    assert await fire_due(assembly, connection) == 0, "one at a time, over all generations"
    assert await runs(api) == [(2, "SKIPPED"), (1, "QUEUED"), (1, "FAILED")]
    order = await finish(api)
    assert (order.generation, str(order.run_id)) == (1, again["run_id"])
    assert (await job(api))["generation"] == 2, "the job is the newest generation, not the newest run"


async def test_runs_of_two_generations_of_a_one_time_job_are_not_alive_together(api: httpx.AsyncClient) -> None:
    await made(api)
    first = await finish(api, "FAILED")
    await made(api)
    refused = problem(await api.post(f"/v1/dead-letters/{first.run_id}:replay"))
    assert (refused["status"], refused["code"]) == (409, "overlap")
    left = (await api.post("/v1/dead-letters:replay", json={"job": "mine"})).json()
    assert (left["replayed"], sum(left["left"].values())) == (0, 1)
    second = await finish(api, "FAILED")
    done = (await api.post("/v1/dead-letters:replay", json={"job": "mine"})).json()
    assert (done["replayed"], sum(done["left"].values())) == (1, 1), "only one of the two generations"
    assert (await create(api)).status_code == 409, "while the replay lives"
    await finish(api)
    assert (await api.post(f"/v1/runs/{second.run_id}:retry")).status_code == 202


async def test_a_late_report_of_an_earlier_generation_changes_nothing(api: httpx.AsyncClient) -> None:
    await made(api)
    worker = HandWorker(api)
    [order] = await worker.claim()
    await worker.report(outcome(order))
    await made(api)
    await worker.report(outcome(order, "FAILED"))  # acknowledged as a repeat
    stranger = HandWorker(api)
    await stranger.hello()
    reply = await stranger.exchange(outcomes=[outcome(order)])
    assert reply.fenced == [order.run_id]
    assert await runs(api) == [(2, "QUEUED"), (1, "SUCCESS")]


async def test_the_status_is_that_of_the_newest_generation(api: httpx.AsyncClient) -> None:
    await made(api)
    await finish(api, "FAILED")
    await made(api, "@daily")
    status = (await api.get("/v1/jobs/mine/status")).json()
    assert (status["status"], status["latest_run"]) == ("SCHEDULED", None)


async def test_dead_letters_and_missed_fires_show_their_generation(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    for _ in range(2):
        await made(api)
        await finish(api, "FAILED")
    listed = (await api.get("/v1/dead-letters")).json()["dead_letters"]
    assert [letter["generation"] for letter in listed] == [2, 1]
    for _ in range(2):
        await made(api, "@daily")
        await make_due(connection, "mine")
        await api.delete("/v1/jobs/mine")
    gaps = (await api.get("/v1/jobs/mine/missed")).json()
    assert [gap["generation"] for gap in gaps] == [4, 3]


async def test_a_generated_id_is_not_used_again(api: httpx.AsyncClient) -> None:
    job_id = (await api.post("/v1/jobs", json={"task": "noop", "schedule": "@daily"})).json()["job_id"]
    await api.delete(f"/v1/jobs/{job_id}")
    refused = problem(await api.post("/v1/jobs", json={"job_id": job_id, "task": "noop"}))
    assert (refused["status"], refused["hint"]) == (409, "leave job_id out, or choose another one")


async def test_a_uuid_that_a_client_chose_can_be_used_again(api: httpx.AsyncClient) -> None:
    job_id = "0190a1b2-0000-7000-8000-000000000001"
    for generation in (1, 2):
        answer = await api.post("/v1/jobs", json={"job_id": job_id, "task": "noop"})
        assert (answer.status_code, answer.json().get("generation", 1)) == (201, generation)
        await api.delete(f"/v1/jobs/{job_id}")


async def test_of_many_creates_of_an_ended_id_at_once_exactly_one_succeeds(api: httpx.AsyncClient) -> None:
    await made(api, "@daily")
    await api.delete("/v1/jobs/mine")
    kinds = ["now", "@daily", FUTURE] * 6
    answers = await asyncio.gather(*(create(api, kind, priority=n % 4) for n, kind in enumerate(kinds)))
    assert sorted(answer.status_code for answer in answers) == [201] + [409] * 17
    assert (await job(api))["generation"] == 2


async def test_of_many_repeats_with_one_key_all_get_the_same_answer(api: httpx.AsyncClient) -> None:
    await made(api)
    await finish(api)
    answers = await asyncio.gather(*(create(api, idempotency_key="k") for _ in range(12)))
    assert sorted(answer.status_code for answer in answers) == [200] * 11 + [201]
    assert {answer.json()["generation"] for answer in answers} == {2}


async def test_a_worker_of_0_2_0_does_not_revive_a_cancelled_schedule(api: httpx.AsyncClient) -> None:
    """It creates its schedules at each start. The SDK of that version generates keys that begin with sdk-."""
    await made(api, "@daily", idempotency_key="sdk-1")
    await api.delete("/v1/jobs/mine")
    refused = problem(await create(api, "@daily", idempotency_key="sdk-2"))
    assert (refused["status"], refused["code"]) == (409, "job_exists")
    assert (await job(api))["status"] == "CANCELLED"


@pytest.mark.parametrize("value", ["0", "-1", "x", "99999999999"])
async def test_a_bad_generation_is_refused(api: httpx.AsyncClient, value: str) -> None:
    for path in ("/v1/jobs/mine", "/v1/jobs/mine/runs", "/v1/runs"):
        refused = problem(await api.get(path, params={"generation": value}))
        assert (refused["status"], refused["field"]) == (422, "generation")
