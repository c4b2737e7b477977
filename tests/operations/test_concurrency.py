"""Concurrency limits: runs are HELD until a limit has room, and a limit is never exceeded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.domain.job import REPLACED
from mainspring.operations.limits.admitter import Admitter
from mainspring.roles.assembly import Assembly
from mainspring.upkeep.deadline_sweeper import DeadlineSweeper
from mainspring.upkeep.slot_reconciler import SlotReconciler
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.limit_helpers import OneAdmitter

pytestmark = pytest.mark.anyio

PER_ACCOUNT = {"key": "payload.account", "limit": 1}
# Whatever happens: in_use counts the rows, no limit is exceeded, and nobody is HELD in a line with room.
COUNTED = """
select k.key, k.in_use, (select count(*) from mainspring.runs r
                         where k.key_id = any (r.limit_keys) and r.state in (1, 2)) as rows, l.slots
from mainspring.limit_keys k join mainspring.limits l using (limit_id)
"""


@pytest.fixture
async def admitter(assembly: Assembly) -> AsyncIterator[Admitter]:
    made = OneAdmitter(assembly.store, assembly.signals)
    yield made
    await made.close()


async def submit(api: httpx.AsyncClient, **fields: Any) -> str:
    answer = await api.post("/v1/jobs", json={"task": "noop", **fields})
    assert answer.status_code == 201, answer.text
    job_id: str = answer.json()["job_id"]
    return job_id


async def charge(api: httpx.AsyncClient, account: Any, **fields: Any) -> str:
    return await submit(api, payload={"account": account}, concurrency=fields.pop("concurrency", PER_ACCOUNT), **fields)


async def states(connection: asyncpg.Connection) -> list[int]:
    return [row["state"] for row in await connection.fetch("select state from mainspring.runs order by run_id")]


async def check(connection: asyncpg.Connection) -> None:
    for row in await connection.fetch(COUNTED):
        assert row["in_use"] == row["rows"], tuple(row)
        assert row["slots"] is None or row["in_use"] <= row["slots"], tuple(row)


async def status_of(api: httpx.AsyncClient, run_id: str) -> str:
    status: str = (await api.get(f"/v1/runs/{run_id}")).json()["status"]
    return status


async def test_one_run_per_account_at_a_time(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    first, second, other = await charge(api, 1), await charge(api, 1), await charge(api, 2)
    assert [await status_of(api, run) for run in (first, second, other)] == ["QUEUED", "HELD", "QUEUED"]
    worker = HandWorker(api)
    orders = await worker.claim(2)
    assert {str(order.run_id) for order in orders} == {first, other}
    assert all(order.exclusive for order in orders)
    await check(connection)
    [mine] = [order for order in orders if str(order.run_id) == first]
    await worker.report(outcome(mine))
    [following] = await worker.claim(1)
    assert str(following.run_id) == second
    await check(connection)


async def test_the_exchange_that_reports_also_gets_the_run_that_was_admitted(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    for _ in range(3):
        await charge(api, 1)
    worker = HandWorker(api)
    [order] = await worker.claim(1)
    for _ in range(2):
        reply = await worker.exchange(outcomes=[outcome(order)], free=1)
        assert (reply.acked, len(reply.runs)) == (1, 1)
        [order] = reply.runs
        await check(connection)


@pytest.mark.parametrize("end", ["cancel queued", "cancel held", "expire", "fail"])
async def test_every_end_gives_the_slot_to_the_next(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, admitter: Admitter, end: str
) -> None:
    first = await charge(api, 1, expires_in="1h", retries=0)
    second, third = await charge(api, 1), await charge(api, 1)
    worker = HandWorker(api)
    if end == "cancel queued":
        assert (await api.post(f"/v1/runs/{first}:cancel")).status_code == 202
    elif end == "cancel held":
        assert (await api.post(f"/v1/runs/{second}:cancel")).status_code == 202
        assert [await status_of(api, run) for run in (first, third)] == ["QUEUED", "HELD"]
        return
    elif end == "expire":
        await connection.execute("update mainspring.runs set expires_at = expires_at - interval '2 hours'")
        assert await DeadlineSweeper(assembly.store, assembly.signals).run_once() == 1
    else:
        [order] = await worker.claim(1)
        await worker.report(outcome(order, "FAILED", error="no"))
    await check(connection)
    assert [await status_of(api, run) for run in (second, third)] == ["QUEUED", "HELD"]


async def test_a_run_that_backs_off_gives_up_its_slot_and_comes_back(
    api: httpx.AsyncClient, connection: asyncpg.Connection, admitter: Admitter
) -> None:
    first, second = await charge(api, 1), await charge(api, 1)
    worker = HandWorker(api)
    [order] = await worker.claim(1)
    await worker.report(outcome(order, "FAILED", error="no"))
    assert [await status_of(api, run) for run in (first, second)] == ["SCHEDULED", "QUEUED"]
    await check(connection)
    await connection.execute("update mainspring.runs set wake_at = clock_timestamp() where wake_at is not null")
    await connection.execute(
        "update mainspring.runs set ready_at = clock_timestamp() where ready_at > clock_timestamp()"
    )
    assert await admitter.run_once() == 0
    assert [await status_of(api, run) for run in (first, second)] == ["HELD", "QUEUED"]
    [order] = await worker.claim(1)
    assert str(order.run_id) == second
    await worker.report(outcome(order))
    [order] = await worker.claim(1)
    assert (str(order.run_id), order.attempt) == (first, 2)
    await check(connection)


async def test_a_strict_run_that_fails_holds_up_the_rest(
    api: httpx.AsyncClient, connection: asyncpg.Connection, admitter: Admitter
) -> None:
    strict = {**PER_ACCOUNT, "order": "strict"}
    first = await charge(api, 1, concurrency=strict)
    low = await charge(api, 1, concurrency=strict, priority="low")
    high = await charge(api, 1, concurrency=strict, priority="critical")
    worker = HandWorker(api)
    [order] = await worker.claim(1)
    await worker.report(outcome(order, "FAILED", error="no"))
    assert await admitter.run_once() == 0
    assert [await status_of(api, run) for run in (first, low, high)] == ["SCHEDULED", "HELD", "HELD"]
    await connection.execute("update mainspring.runs set wake_at = clock_timestamp() where wake_at is not null")
    assert await admitter.run_once() == 1
    for expected in (first, low, high):
        [order] = await worker.claim(1)
        assert str(order.run_id) == expected
        await worker.report(outcome(order))
        await check(connection)


async def test_rank_decides_within_a_key(api: httpx.AsyncClient) -> None:
    await charge(api, 1)
    low, normal, high = [await charge(api, 1, priority=word) for word in ("low", "normal", "high")]
    worker = HandWorker(api)
    [order] = await worker.claim(1)
    for expected in (high, normal, low):
        await worker.report(outcome(order))
        [order] = await worker.claim(1)
        assert str(order.run_id) == expected


async def test_two_limits_at_once(api: httpx.AsyncClient, connection: asyncpg.Connection, admitter: Admitter) -> None:
    both = [{"limit": 2, "per": "task"}, PER_ACCOUNT]
    jobs = [await charge(api, account, concurrency=both) for account in (1, 1, 2, 3)]
    assert [await status_of(api, run) for run in jobs] == ["QUEUED", "HELD", "QUEUED", "HELD"]
    worker = HandWorker(api)
    done: list[str] = []
    orders = await worker.claim(2)
    while orders:
        await check(connection)
        await worker.report(outcome(orders[0]))
        done.append(str(orders.pop(0).run_id))
        await admitter.run_once()
        orders += (await worker.exchange(free=4)).runs
        assert len(orders) <= 2
    assert sorted(done) == sorted(jobs)
    await check(connection)


async def test_a_limit_of_a_recurring_job_counts_its_fires_and_manual_runs(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await submit(api, job_id="nightly", schedule="0 0 * * *", overlap="allow", concurrency=2)
    answers = [(await api.post("/v1/jobs/nightly:runNow")).json() for _ in range(3)]
    assert [answer["status"] for answer in answers] == ["QUEUED", "QUEUED", "HELD"]
    await check(connection)


async def test_a_job_that_is_refused_or_repeated_does_not_change_the_limit(api: httpx.AsyncClient) -> None:
    job = {"task": "noop", "job_id": "daily", "cron": "0 3 * * *", "idempotency_key": "first"}
    assert (await api.post("/v1/jobs", json={**job, "concurrency": 1})).status_code == 201
    taken = await api.post("/v1/jobs", json={**job, "idempotency_key": "other", "concurrency": 5, "overlap": "queue"})
    assert (taken.status_code, taken.json()["code"]) == (409, "job_exists")
    assert await numbers(api) == {"job:daily": 1}
    assert (await api.patch("/v1/jobs/daily", json={"concurrency": 3})).status_code == 200
    assert (await api.post("/v1/jobs", json={**job, "concurrency": 1})).status_code == 200
    assert await numbers(api) == {"job:daily": 3}


async def test_a_job_that_is_not_stored_does_not_change_the_limit_of_its_task(api: httpx.AsyncClient) -> None:
    unique = {"by": ["task"]}
    job = {
        "task": "noop",
        "job_id": "one",
        "unique": unique,
        "delay": "1h",
        "concurrency": {"limit": 2, "per": "task"},
    }
    assert (await api.post("/v1/jobs", json=job)).status_code == 201
    other = {**job, "concurrency": {"limit": 7, "per": "task"}}
    kept = await api.post("/v1/jobs", json={**other, "job_id": "two"})
    assert (kept.status_code, kept.json()["unique"]) == (200, "kept")
    del other["unique"]
    assert (await api.post("/v1/jobs", json=other)).json()["code"] == "job_exists"
    more = {"task": "noop", "concurrency": {"limit": 3, "key": "payload.a"}}
    batch = await api.post("/v1/jobs:batch", json={"jobs": [more, other]})
    assert (batch.status_code, batch.json()["code"]) == (409, "job_exists")
    assert await numbers(api) == {"task:noop": 2}


async def test_the_last_declaration_counts(api: httpx.AsyncClient) -> None:
    for number in (3, 5, 3):
        await submit(api, concurrency=number)
        assert await numbers(api) == {"task:noop": number}
    answer = await api.post("/v1/jobs:batch", json={"jobs": [{"task": "noop", "concurrency": n} for n in (4, 2, 4, 6)]})
    assert answer.status_code == 201
    assert await numbers(api) == {"task:noop": 6}


@pytest.mark.parametrize("way", ["submit", "batch", "patch", "one batch"])
async def test_strict_order_is_not_lost_by_a_job_that_declares_the_limit_without_it(
    api: httpx.AsyncClient, way: str
) -> None:
    strict = {**PER_ACCOUNT, "order": "strict"}
    if way != "one batch":
        await charge(api, 1, concurrency=strict)
    job = {"task": "noop", "payload": {"account": 2}, "concurrency": {"limit": 5, "key": "payload.account"}}
    if way == "submit":
        answer = await api.post("/v1/jobs", json=job)
    elif way == "patch":
        await submit(api, job_id="j", schedule="manual", payload={"account": 2})
        answer = await api.patch("/v1/jobs/j", json={"concurrency": job["concurrency"]})
    else:
        first = {**job, "concurrency": strict}
        answer = await api.post("/v1/jobs:batch", json={"jobs": [first, job]})
        assert answer.json()["errors"][0]["field"] == "jobs[1].concurrency.order"
    assert (answer.status_code, answer.json()["code"]) == (409, "strict_order"), answer.text
    listed = (await api.get("/v1/limits")).json()["limits"]
    assert [(one["limit"], one["order"]) for one in listed] == ([] if way == "one batch" else [(1, "strict")])


async def test_a_person_ends_strict_order(api: httpx.AsyncClient) -> None:
    strict = {**PER_ACCOUNT, "order": "strict"}
    await charge(api, 1, concurrency=strict)
    [limit] = (await api.get("/v1/limits")).json()["limits"]
    path = f"/v1/limits/{limit['limit_id']}"
    assert (await api.put(path, json={"limit": None, "order": "strict"})).json()["field"] == "order"
    answer = await api.put(path, json={"limit": 4, "order": "priority"})
    assert (answer.json()["limit"]["limit"], answer.json()["limit"]["order"]) == (4, "priority")
    await charge(api, 1, concurrency={**PER_ACCOUNT, "limit": 2})
    await api.put(path, json={"limit": None})
    assert await numbers(api) == {limit["name"]: 2}
    await charge(api, 1, concurrency=strict)
    assert await numbers(api) == {limit["name"]: 1}


async def test_an_id_that_is_used_again_has_the_limit_of_its_newest_job(api: httpx.AsyncClient) -> None:
    for number in (1, 3, 1):
        await submit(api, job_id="daily", cron="0 3 * * *", concurrency=number)
        assert await numbers(api) == {"job:daily": number}
        assert (await api.delete("/v1/jobs/daily")).status_code == 200


async def numbers(api: httpx.AsyncClient) -> dict[str, int]:
    return {limit["name"]: limit["limit"] for limit in (await api.get("/v1/limits")).json()["limits"]}


async def test_overlap_queue_lets_the_runs_of_a_job_go_one_after_another(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await submit(api, job_id="nightly", schedule="0 0 * * *", overlap="queue")
    runs = [(await api.post("/v1/jobs/nightly:runNow")).json() for _ in range(3)]
    assert [run["status"] for run in runs] == ["QUEUED", "HELD", "HELD"]
    worker = HandWorker(api)
    for run in runs:
        [order] = await worker.claim(1)
        assert str(order.run_id) == run["run_id"]
        await worker.report(outcome(order))
    await check(connection)


async def test_overlap_cancel_previous_replaces_what_lives(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await submit(api, job_id="sync", schedule="0 0 * * *", overlap="cancel_previous")
    first = (await api.post("/v1/jobs/sync:runNow")).json()
    worker = HandWorker(api)
    [order] = await worker.claim(1)
    second = (await api.post("/v1/jobs/sync:runNow")).json()
    third = (await api.post("/v1/jobs/sync:runNow")).json()
    assert (first["status"], second["status"], third["status"]) == ("QUEUED", "HELD", "HELD")
    assert await status_of(api, second["run_id"]) == "CANCELLED"
    reply = await worker.exchange(free=5)
    assert (reply.runs, [str(run) for run in reply.stop]) == ([], [first["run_id"]])
    await worker.report(outcome(order, "CANCELLED"))
    for run in (first, second):
        assert (await api.get(f"/v1/runs/{run['run_id']}")).json()["reason"] == REPLACED
    [order] = await worker.claim(1)
    assert str(order.run_id) == third["run_id"]
    await api.post(f"/v1/runs/{third['run_id']}:cancel")
    await worker.report(outcome(order, "CANCELLED"))
    assert (await api.get(f"/v1/runs/{third['run_id']}")).json()["reason"] == "cancelled on request"
    await check(connection)


@pytest.mark.parametrize(("before", "after"), [("allow", "queue"), ("skip", "queue"), ("queue", "allow")])
async def test_runs_that_live_follow_a_change_of_the_overlap_rule(
    api: httpx.AsyncClient, connection: asyncpg.Connection, before: str, after: str
) -> None:
    await submit(api, job_id="nightly", schedule="0 0 * * *", overlap=before)
    for _ in range(2):
        await api.post("/v1/jobs/nightly:runNow")
    assert (await api.patch("/v1/jobs/nightly", json={"overlap": after})).status_code == 200
    last = (await api.post("/v1/jobs/nightly:runNow")).json()
    assert last["status"] == ("QUEUED" if after == "allow" else "HELD")
    worker = HandWorker(api)
    if after == "allow":
        assert len(await worker.claim(3)) == 3
    else:
        orders = await worker.claim(2 if before == "allow" else 1)
        assert (await worker.exchange(free=5)).runs == []
        await worker.report(*map(outcome, orders))
        assert len(await worker.claim(1)) == 1


async def test_a_line_that_was_pruned_is_opened_again(
    api: httpx.AsyncClient, connection: asyncpg.Connection, admitter: Admitter
) -> None:
    await submit(api, job_id="nightly", schedule="0 0 * * *", overlap="queue")
    await connection.execute("delete from mainspring.limit_keys")
    first, second = [(await api.post("/v1/jobs/nightly:runNow")).json() for _ in range(2)]
    assert (first["status"], second["status"]) == ("QUEUED", "HELD")
    await check(connection)


async def test_the_admitter_finds_a_line_that_a_dead_process_left(
    api: httpx.AsyncClient, connection: asyncpg.Connection, admitter: Admitter
) -> None:
    first, second = await charge(api, 1), await charge(api, 1)
    await connection.execute("delete from mainspring.runs where run_id = $1", first)
    await connection.execute("update mainspring.limit_keys set in_use = 0")
    assert await admitter.run_once() == 1
    assert await status_of(api, second) == "QUEUED"
    await check(connection)


async def test_a_slot_that_nobody_owns_is_found_and_given_back(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, admitter: Admitter
) -> None:
    """A server of an older version has ended the run."""
    first, second = await charge(api, 1), await charge(api, 1)
    long_run, waiting = await charge(api, 2), await charge(api, 2)
    await connection.execute("delete from mainspring.runs where run_id = $1", first)
    auditor = SlotReconciler(assembly.store, assembly.signals)
    assert await auditor.run_once() == 0, "it may have changed a moment ago"
    await connection.execute("update mainspring.limit_keys set used_at = used_at - interval '1 hour'")
    assert await auditor.run_once() == 1
    await admitter.run_once()
    assert await status_of(api, second) == "QUEUED"
    assert [await status_of(api, run) for run in (long_run, waiting)] == ["QUEUED", "HELD"]
    await check(connection)


async def test_the_other_line_of_a_run_is_opened_again_too(
    api: httpx.AsyncClient, connection: asyncpg.Connection, admitter: Admitter
) -> None:
    both = [{"limit": 1, "per": "task"}, PER_ACCOUNT]
    first, second = [await charge(api, 1, concurrency=both) for _ in range(2)]
    held = await connection.fetchval("select held_key from mainspring.runs where run_id = $1", second)
    await connection.execute("delete from mainspring.runs where run_id = $1", first)
    await connection.execute("delete from mainspring.limit_keys where key_id <> $1", held)
    await connection.execute("update mainspring.limit_keys set in_use = 0")
    await admitter.run_once()
    assert await status_of(api, second) == "QUEUED"
    await check(connection)
