"""The exchange: claims and sequence numbers. It is safe to repeat, also at another server."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from functools import partial
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.kernel.clock import ManualClock
from mainspring.kernel.ids import uuid7
from mainspring.roles.assembly import assemble
from tests.api.bookkeeping import problem, rows
from tests.conftest import TOKEN
from tests.operations.hand_worker import HandWorker, held, outcome
from tests.operations.servers import another_server
from tests.operations.waiting import until

pytestmark = pytest.mark.anyio


async def submit(api: httpx.AsyncClient, count: int = 1, **fields: Any) -> list[str]:
    answer = await api.post("/v1/jobs:batch", json=[{"task": "noop", **fields}] * count)
    assert answer.status_code == 201, answer.text
    return list(answer.json()["job_ids"])


async def run_rows(connection: asyncpg.Connection) -> list[asyncpg.Record]:
    return list(await connection.fetch("select * from mainspring.runs order by run_id"))


async def test_hello_registers_an_incarnation_and_may_be_repeated(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    worker = HandWorker(api)
    assert (await worker.hello()).seq == 1
    worker.card.slots = 7
    await worker.hello()
    [row] = await connection.fetch("select * from mainspring.workers")
    assert (row["worker_id"], row["name"], row["slots"], row["state"]) == (worker.worker_id, "by-hand", 7, 1)


async def test_a_claim_comes_with_all_that_is_needed_to_run_it(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    [plain] = await submit(api, payload={"a": [1, "ä"]})
    await api.post(
        "/v1/jobs",
        json={"job_id": "mine", "name": "N", "command": ["echo", "hi"], "timeout": "90s", "max_retries": 1},
    )
    worker = HandWorker(api, tasks=["noop", "shell"])
    first, second = sorted(await worker.claim(2), key=lambda order: order.task)
    assert (first.task, first.job_id, str(first.run_id)) == ("noop", plain, plain)
    assert (bytes(first.payload), first.command, first.name) == ('{"a":[1,"ä"]}'.encode(), None, None)
    assert (first.fence, first.attempt, first.max_attempts, first.timeout) == (1, 1, 4, 3600.0)
    assert (second.task, second.job_id, second.name, second.command) == ("shell", "mine", "N", ["echo", "hi"])
    assert (bytes(second.payload), second.timeout, second.max_attempts) == (b"null", 90.0, 2)
    stored = {row["run_id"]: row for row in await run_rows(connection)}
    for order in (first, second):
        row = stored[order.run_id]
        assert (row["state"], row["worker_id"], row["claim_seq"]) == (2, worker.worker_id, worker.seq)
        assert row["scheduled_for"] == order.scheduled_for


async def test_a_worker_gets_as_many_as_it_has_room_for_of_its_tasks_and_queues(api: httpx.AsyncClient) -> None:
    await submit(api, 5)
    await submit(api, 2, queue="heavy")
    await submit(api, 2, task="other")
    worker = HandWorker(api)
    assert len((await worker.hello(free=3)).runs) == 3
    assert (await worker.exchange(free=0)).runs == []
    assert len((await worker.exchange(free=100)).runs) == 2
    other = HandWorker(api, tasks=["other"], queues=["heavy", "default"])
    assert {order.task for order in (await other.hello(free=100)).runs} == {"other"}


async def test_critical_goes_first_and_the_others_by_priority_and_age(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    for priority in ("low", "normal", "high", "critical"):
        await api.post("/v1/jobs", json={"job_id": priority, "task": "noop", "priority": priority})
    await api.post("/v1/jobs", json={"job_id": "aged", "task": "noop", "priority": "low"})
    await connection.execute(
        "update mainspring.runs set ready_at = ready_at - interval '11 minutes' where job_id = 'aged'"
    )
    worker = HandWorker(api)
    assert [order.job_id for order in await worker.claim(5)] == ["critical", "aged", "high", "normal", "low"]


async def test_no_run_is_given_to_two_workers(api: httpx.AsyncClient, database_url: str) -> None:
    made = await submit(api, 30)
    async with another_server(database_url) as other:
        workers = [HandWorker((api, other)[n % 2]) for n in range(6)]
        taken = [order.job_id for worker in workers for order in (await worker.hello(free=7)).runs]
    assert sorted(taken) == sorted(made)


async def test_heavy_runs_are_given_few_at_a_time(api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.operations.claim.claimer._MAX_CLAIM_BYTES", 1024**2)
    heavy = {"task": "noop", "payload": {"text": "x" * 100_000}}
    assert (await api.post("/v1/jobs:batch", json=[heavy] * 40)).status_code == 201
    worker = HandWorker(api)
    await worker.hello()
    given = [len((await worker.exchange(free=100)).runs) for _ in range(4)]
    assert given == [16, 10, 10, 4], "64 KiB are assumed at first, then the size of earlier runs counts"
    assert (await api.post("/v1/jobs:batch", json=[{"task": "noop"}] * 100)).status_code == 201
    assert len((await worker.exchange(free=100)).runs) == 100, "the first ten show that they are small"


async def test_workers_that_have_gone_without_a_word_are_forgotten(database_url: str) -> None:
    clock = ManualClock(datetime(2026, 11, 15, tzinfo=UTC))
    assembly = await assemble(database_url, clock, scheduler=False)
    transport = httpx.ASGITransport(app=assembly.app)  # type: ignore[arg-type]
    headers = {"Authorization": f"Bearer {TOKEN}"}
    exchanger = assembly.services.exchanger
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8701", headers=headers) as server:
        staying, killed = HandWorker(server), HandWorker(server)
        await killed.hello()
        await staying.hello()
        clock.advance(59)
        await staying.exchange()
        await exchanger.poll()
        assert exchanger.workers == 2
        clock.advance(2)
        await exchanger.poll()
        assert exchanger.workers == 1
        assert (await killed.exchange()).seq == 2, "its row is still there after a minute without contact"
    await assembly.close()


async def test_lanes_that_nobody_has_used_yet_do_not_make_claims_smaller(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.operations.claim.claimer._MAX_CLAIM_BYTES", 1024**2)
    await submit(api, queue="other", schedule={"at": "2099-01-01T00:00:00Z"})
    await submit(api, 50)
    worker = HandWorker(api, queues=["default", "other"])
    await worker.hello()
    assert len((await worker.exchange(free=100)).runs) == 50


async def test_claims_whose_answer_was_lost_are_handed_out_again_with_the_same_fence(
    api: httpx.AsyncClient, connection: asyncpg.Connection, database_url: str
) -> None:
    await submit(api, 4)
    worker = HandWorker(api)
    arrived = await worker.claim(1)
    lost = await worker.claim(2)  # this reply is lost
    before = await run_rows(connection)
    async with another_server(database_url) as other:
        for server in (api, other, api):  # the next replies are lost as well
            worker.api = server
            again = (await worker.exchange(recover=True, inventory=held(*arrived))).runs
            assert sorted(again, key=str) == sorted(lost, key=str)
    assert await run_rows(connection) == before
    assert (await worker.exchange(recover=True, inventory=held(*arrived, *lost))).runs == []


async def test_a_recovering_worker_gets_what_was_lost_before_anything_new_and_no_more_than_it_asked_for(
    api: httpx.AsyncClient,
) -> None:
    made = await submit(api, 5)
    worker = HandWorker(api)
    lost = await worker.claim(2)
    reply = await worker.exchange(recover=True, free=3)
    assert [order.run_id for order in reply.runs[:2]] == [order.run_id for order in lost]
    assert [str(order.run_id) for order in reply.runs] == made[:3]


async def test_a_run_that_is_reported_in_the_same_exchange_is_not_handed_out_again(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await submit(api, 2)
    worker = HandWorker(api)
    first, second = await worker.claim(2)
    reply = await worker.exchange(recover=True, outcomes=[outcome(first)], inventory=held(second))
    assert (reply.acked, reply.runs) == (1, [])
    assert [row["run_id"] for row in await run_rows(connection)] == [second.run_id]


async def test_a_lost_claim_that_was_cancelled_meanwhile_reaches_its_worker_to_be_stopped(
    api: httpx.AsyncClient,
) -> None:
    [job_id] = await submit(api)
    worker = HandWorker(api)
    [order] = await worker.claim(1)  # this reply is lost
    await api.delete(f"/v1/jobs/{job_id}")
    reply = await worker.exchange(recover=True)
    # The worker can stop only what it holds: it must be given the run, or the run must have ended.
    if (await api.get(f"/v1/runs/{job_id}")).json()["status"] == "RUNNING":
        assert [again.run_id for again in reply.runs] == [order.run_id]


async def test_an_exchange_that_is_not_newer_changes_nothing(
    api: httpx.AsyncClient, connection: asyncpg.Connection, database_url: str
) -> None:
    await submit(api, 6)
    worker = HandWorker(api)
    [order] = await worker.claim(1)
    await worker.exchange(outcomes=[outcome(order)])
    [order] = await worker.claim(1)
    before = (
        await rows(connection),
        await run_rows(connection),
        await connection.fetch("select * from mainspring.workers"),
    )
    async with another_server(database_url) as other:
        for server in (api, other):
            for seq, fields in (
                (worker.seq, {"free": 2}), (1, {"free": 2}), (worker.seq, {"outcomes": [outcome(order)]}),
                (2, {"outcomes": [outcome(order, "FAILED")]}), (worker.seq, {"recover": True, "free": 2}),
                (worker.seq, {"draining": True}), (worker.seq, {"stopped": True}),
            ):  # fmt: skip
                copy = HandWorker(server)
                copy.worker_id, copy.seq = worker.worker_id, seq - 1
                refused = problem(await copy.ask(**fields))
                assert (refused["status"], refused["code"], refused["field"]) == (409, "stale_exchange", "seq")
                assert "recover" in refused["hint"]
    after = (
        await rows(connection),
        await run_rows(connection),
        await connection.fetch("select * from mainspring.workers"),
    )
    assert after == before
    assert (await worker.report(outcome(order))).fenced == [], "the worker itself continues"


async def test_an_exchange_that_is_overtaken_at_its_own_server_is_superseded_and_not_refused(
    database_url: str, connection: asyncpg.Connection
) -> None:
    """It looks for runs while its worker reports. After a refusal the worker would assume that a reply was lost."""
    clock = ManualClock(datetime(2026, 11, 15, tzinfo=UTC))  # stands still, so no check for runs to stop is due
    async with another_server(database_url, clock=clock) as server:
        worker = HandWorker(server)
        await worker.hello()
        await submit(server)
        async with connection.transaction():
            await connection.execute("lock table mainspring.runs")
            looking = asyncio.create_task(worker.exchange(free=1, wait_ms=1000))
            await until(partial(somebody_waits_for_runs, connection))
            await worker.exchange(draining=True)
        reply = await looking
        assert (reply.seq, reply.superseded, reply.runs) == (2, True, [])


async def somebody_waits_for_runs(connection: asyncpg.Connection) -> bool:
    query = "select exists (select from pg_locks where not granted and relation = 'mainspring.runs'::regclass)"
    return bool(await connection.fetchval(query))


async def test_a_gap_in_the_numbers_is_fine(api: httpx.AsyncClient) -> None:
    await submit(api, 2)
    worker = HandWorker(api)
    await worker.claim(1)
    worker.seq += 1000
    assert len(await worker.claim(1)) == 1


async def test_an_incarnation_that_nobody_knows_is_told_so(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await submit(api)
    before = await rows(connection)
    for fields in ({}, {"free": 5}, {"recover": True}, {"draining": True}):
        refused = problem(await HandWorker(api).ask(**fields))
        assert (refused["status"], refused["code"]) == (409, "unknown_worker")
        assert "hello" in refused["hint"]
    assert await rows(connection) == before


@pytest.mark.parametrize("state", [3, 4], ids=["LOST", "STOPPED"])
async def test_an_incarnation_that_is_over_is_fenced_off_at_every_server(
    api: httpx.AsyncClient, connection: asyncpg.Connection, database_url: str, state: int
) -> None:
    await submit(api, 3)
    worker = HandWorker(api)
    [order] = await worker.claim(1)
    await connection.execute("update mainspring.workers set state = $1, ended_at = clock_timestamp()", state)
    before = await run_rows(connection)
    async with another_server(database_url) as other:
        for worker.api in (api, other):
            for fields in (
                {"free": 1}, {"outcomes": [outcome(order)]}, {"recover": True}, {"hello": worker.card, "free": 1}, {},
            ):  # fmt: skip
                refused = problem(await worker.ask(**fields))
                assert (refused["status"], refused["code"]) == (409, "fenced")
                assert "new worker_id" in refused["hint"]
    assert await run_rows(connection) == before
    fresh = HandWorker(api)
    assert len((await fresh.hello(free=5)).runs) == 2


async def test_a_draining_worker_gets_no_runs_and_may_still_report(api: httpx.AsyncClient) -> None:
    await submit(api, 3)
    worker = HandWorker(api)
    [order] = await worker.claim(1)
    assert (await worker.exchange(draining=True, free=5)).runs == []
    reply = await worker.exchange(draining=True, free=5, outcomes=[outcome(order)])
    assert (reply.acked, reply.fenced, reply.runs) == (1, [], [])


async def test_a_worker_that_said_goodbye_is_over(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    await submit(api, 2)
    worker = HandWorker(api)
    [order] = await worker.claim(1)
    reply = await worker.exchange(draining=True, stopped=True, outcomes=[outcome(order)])
    assert (reply.acked, reply.runs) == (1, [])
    assert await connection.fetchval("select state from mainspring.workers") == 4
    assert (await worker.ask(free=1)).json()["code"] == "fenced"


async def test_bad_exchanges_are_refused_by_field(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    worker_id = str(uuid7())
    good = {"worker_id": worker_id, "seq": 1}
    run = {"run_id": worker_id, "fence": 1}
    hello = {"name": "w", "queues": ["q"], "tasks": ["t"], "slots": 1}
    before = await rows(connection)
    for body, code, field in (
        ({}, "invalid_input", "worker_id"), ({"worker_id": "x", "seq": 1}, "invalid_input", "worker_id"),
        (good | {"seq": 0}, "invalid_input", "seq"), (good | {"free": -1}, "invalid_input", "free"),
        (good | {"free": 10_001}, "invalid_input", "free"), (good | {"wait_ms": 10_001}, "invalid_input", "wait_ms"),
        (good | {"fre": 1}, "unknown_field", "fre"), (good | {"inventory": [5]}, "invalid_input", "inventory[...]"),
        (good | {"outcomes": [run | {"status": "DONE"}]}, "invalid_input", "outcomes[...].status"),
        (good | {"outcomes": [run | {"eror": "x"}]}, "unknown_field", "outcomes[...].eror"),
        (good | {"hello": hello | {"slots": 0}}, "invalid_input", "hello.slots"),
        (good | {"hello": hello | {"slot": 1}}, "unknown_field", "hello.slot"),
        (good | {"hello": hello | {"name": ""}}, "invalid_input", "hello.name"),
        (good | {"hello": hello | {"name": "a\0"}}, "unstorable_value", None),
        (good | {"hello": hello | {"tasks": ["a\0"]}}, "unstorable_value", None),
    ):  # fmt: skip
        refused = problem(await api.post("/v1/exchange", json=body))
        found = (refused["status"], refused["code"], (refused.get("field") or "").replace("[0]", "[...]") or None)
        assert found == (422, code, field), body
    assert refused["hint"]
    unknown = problem(await api.post("/v1/exchange", json=good | {"outcomes": [run | {"eror": "x"}]}))
    assert unknown["hint"] == "did you mean 'error'?"
    assert await rows(connection) == before
