"""Limits of queues and tenants at the claim: how many runs at once, pauses, and what gives a place back."""

from __future__ import annotations

import asyncio

import asyncpg
import httpx
import pytest

from mainspring.operations.limits.gate_keeper import GateKeeper
from mainspring.roles.assembly import Assembly
from mainspring.store import gates
from tests.eventually import PATIENCE

from .gated import check_counts, put, submit
from .hand_worker import HandWorker, outcome
from .servers import another_server

pytestmark = pytest.mark.anyio


async def test_no_more_runs_of_a_queue_run_than_its_limit(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await submit(api, 10)
    await put(api, concurrency=3)
    worker, other = HandWorker(api), HandWorker(api)
    first = (await worker.hello(free=10)).runs
    assert len(first) == 3
    assert all(order.exclusive for order in first)
    assert (await other.hello(free=10)).runs == []
    view = (await api.get("/v1/queues/default")).json()
    assert view["limits"] | {"paused_at": None} == {
        "queue": "default", "paused": False, "paused_by": None, "paused_at": None, "pause_reason": None,
        "concurrency": 3, "in_use": 3, "rate": None, "burst": None, "tokens": None, "max_depth": None, "version": 2,
    }  # fmt: skip
    assert (view["depth"] + view["running"], view["paused"]) == (10, False)  # claimed ones are shown as queued
    await check_counts(connection)
    reply = await worker.exchange(outcomes=[outcome(first[0])], free=10)
    assert (reply.acked, len(reply.runs)) == (1, 1)
    await check_counts(connection)


async def test_each_way_in_which_a_run_leaves_its_worker_gives_its_place_back(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await submit(api, 4)
    await put(api, concurrency=4)
    worker = HandWorker(api)
    orders = (await worker.hello(free=10)).runs
    await worker.report(
        outcome(orders[0]),
        outcome(orders[1], "FAILED", error="no"),
        outcome(orders[2], "RETURNED"),
        outcome(orders[3], "FAILED", error="later", snooze=30.0),
    )
    await check_counts(connection)
    assert (await api.get("/v1/queues/default")).json()["limits"]["in_use"] == 0
    again = (await worker.exchange(free=10)).runs
    assert [order.run_id for order in again] == [orders[2].run_id]
    assert again[0].exclusive
    await check_counts(connection)


async def test_a_run_with_a_limit_of_its_own_gives_back_both_places_while_it_backs_off(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    for _ in range(2):
        await api.post("/v1/jobs", json={"task": "noop", "concurrency": {"limit": 1}, "queue": "default"})
    await put(api, concurrency=5)
    worker = HandWorker(api)
    [first] = (await worker.hello(free=10)).runs
    await check_counts(connection)
    reply = await worker.exchange(outcomes=[outcome(first, "FAILED", error="no")], free=10)
    [second] = reply.runs
    assert second.run_id != first.run_id
    await check_counts(connection)
    await worker.report(outcome(second))
    assert (await api.get("/v1/queues/default")).json()["limits"]["in_use"] == 0


async def test_a_run_that_came_back_is_ordinary_again_when_the_limit_is_gone(api: httpx.AsyncClient) -> None:
    await submit(api, 1)
    await put(api, concurrency=1)
    worker = HandWorker(api)
    [order] = (await worker.hello(free=1)).runs
    await worker.report(outcome(order, "RETURNED"))
    await put(api, concurrency=None)
    [again] = (await worker.exchange(free=1)).runs
    assert (again.run_id, again.exclusive) == (order.run_id, False)


async def test_queue_and_tenant_apply_together(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    for queue in ("a", "b", "c"):
        await submit(api, 5, queue)
    await put(api, "a", concurrency=2)
    await put(api, "b", concurrency=4)
    await put(api, None, concurrency=7)
    worker = HandWorker(api, queues=["a", "b", "c"])
    orders = (await worker.hello(free=50)).runs
    assert len(orders) == 7
    by_queue = {queue: sum(order.queue == queue for order in orders) for queue in "abc"}
    assert by_queue["a"] <= 2
    assert by_queue["b"] <= 4
    await check_counts(connection)
    assert (await api.get("/v1/tenant/limits")).json()["in_use"] == 7
    await worker.report(*(outcome(order) for order in orders))
    await check_counts(connection)
    assert (await api.get("/v1/tenant/limits")).json()["in_use"] == 0


async def test_what_runs_when_a_limit_is_set_counts(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    await submit(api, 6)
    worker = HandWorker(api)
    orders = await worker.claim(3)
    assert not any(order.exclusive for order in orders)
    assert (await put(api, concurrency=4))["in_use"] == 3
    await check_counts(connection)
    assert len((await worker.exchange(free=10)).runs) == 1
    await worker.report(outcome(orders[0]))
    assert len((await worker.exchange(free=10)).runs) == 1
    await check_counts(connection)


async def test_a_lowered_limit_admits_nothing_until_enough_have_ended(api: httpx.AsyncClient) -> None:
    await submit(api, 6)
    await put(api, concurrency=3)
    worker = HandWorker(api)
    orders = (await worker.hello(free=10)).runs
    await put(api, concurrency=2)
    assert (await worker.exchange(outcomes=[outcome(orders[0])], free=10)).runs == []
    assert len((await worker.exchange(outcomes=[outcome(orders[1])], free=10)).runs) == 1
    await put(api, concurrency=4)
    assert len((await worker.exchange(free=10)).runs) == 2


async def test_a_server_that_was_not_told_of_a_limit_keeps_it(
    api: httpx.AsyncClient, assembly: Assembly, database_url: str, connection: asyncpg.Connection
) -> None:
    async with another_server(database_url) as other:
        worker, elsewhere = HandWorker(api), HandWorker(other)
        await elsewhere.hello()
        await submit(other, 5)
        await put(api, concurrency=1)
        assert len((await elsewhere.exchange(free=5)).runs) == 1  # its registry was empty
        await assembly.lanes.refresh()
        assert (await worker.hello(free=5)).runs == []
        await put(api, paused=True, concurrency=None)
        assert (await elsewhere.exchange(free=5)).runs == []
        await check_counts(connection)


async def test_claims_take_only_as_many_as_have_free_slots(api: httpx.AsyncClient) -> None:
    """A run that waits in a worker would keep others from starting: those of its limit, or those behind the gate."""
    await submit(api, 10, "limited")
    await submit(api, 10, "free")
    await put(api, "limited", concurrency=10)
    worker = HandWorker(api, queues=["limited", "free"])
    worker.card.slots = 2
    orders = (await worker.hello(free=12)).runs
    assert sorted(order.queue for order in orders) == ["free", "limited"]
    await api.post("/v1/queues/limited:pause")
    assert [order.queue for order in (await worker.exchange(free=10)).runs] == ["free"] * 9


async def test_a_paused_queue_accepts_jobs_and_starts_none(api: httpx.AsyncClient) -> None:
    worker = HandWorker(api)
    await worker.hello()
    answer = await api.post("/v1/queues/default:pause")
    assert answer.status_code == 200
    assert (answer.json()["paused"], answer.json()["paused_by"]) == (True, "test")
    [job_id] = await submit(api, 1)
    assert (await worker.exchange(free=5)).runs == []
    why = (await api.get(f"/v1/runs/{job_id}/why")).json()
    assert "queue default is paused by test" in why["why"]
    assert (await api.post("/v1/queues/default:resume")).json()["paused"] is False
    assert len((await worker.exchange(free=5)).runs) == 1


async def test_a_pause_has_a_reason_until_it_ends(api: httpx.AsyncClient) -> None:
    [run_id] = await submit(api, 1)
    paused = (await api.post("/v1/queues/default:pause", json={"reason": "mail is down\n"})).json()
    assert (paused["paused"], paused["pause_reason"]) == (True, "mail is down")
    why = (await api.get(f"/v1/runs/{run_id}/why")).json()["why"]
    assert why.endswith("queue default is paused by test: mail is down.")
    assert (await api.get("/v1/queues/default")).json()["limits"]["pause_reason"] == "mail is down"
    again = (await api.post("/v1/queues/default:pause")).json()
    assert again["pause_reason"] == "mail is down", "a second pause keeps it"
    changed = (await api.put("/v1/queues/default", json={"pause_reason": "mail comes back at 9"})).json()
    assert (changed["paused"], changed["pause_reason"]) == (True, "mail comes back at 9")
    resumed = (await api.post("/v1/queues/default:resume")).json()
    assert (resumed["paused"], resumed["pause_reason"]) == (False, None)
    everything = (await api.post("/v1/pause", json={"reason": "we move"})).json()
    assert (everything["paused"], everything["pause_reason"]) == (True, "we move")
    assert (await api.get("/v1/queues/default")).json()["paused_why"] == "everything is paused by test: we move"


@pytest.mark.parametrize(
    "verb, path, body, field",
    [
        ("put", "/v1/queues/default", {"pause_reason": "why"}, "pause_reason"),
        ("put", "/v1/queues/default", {"paused": False, "pause_reason": "why"}, "pause_reason"),
        ("put", "/v1/tenant/limits", {"pause_reason": "why"}, "pause_reason"),
        ("post", "/v1/queues/default:pause", {"reason": "x" * 1001}, "reason"),
        ("post", "/v1/queues/default:pause", {"reason": "nul\0"}, "reason"),
        ("post", "/v1/pause", {"reason": "x" * 1001}, "reason"),
    ],
)
async def test_a_reason_without_a_pause_or_that_nobody_reads_is_refused(
    api: httpx.AsyncClient, verb: str, path: str, body: dict[str, str], field: str
) -> None:
    refused = await api.request(verb.upper(), path, json=body)
    assert (refused.status_code, refused.json()["field"]) == (422, field)
    assert not (await api.get("/v1/tenant/limits")).json()["paused"]


async def test_a_change_of_a_queue_that_nobody_uses_says_so(api: httpx.AsyncClient) -> None:
    await submit(api, 1)
    for verb, path, body, undone in (
        ("POST", ":pause", None, False), ("POST", ":pause", None, False), ("POST", ":resume", None, True),
        ("POST", ":resume", None, False), ("PUT", "", {"concurrency": 3}, False),
    ):  # fmt: skip
        answer = (await api.request(verb, f"/v1/queues/defualt{path}", json=body)).json()
        if undone:
            assert "warnings" not in answer
        else:
            assert answer["warnings"] == ["no job and no worker uses queue defualt; did you mean 'default'?"]
    far = (await api.post("/v1/queues/nope:pause")).json()
    assert far["warnings"] == ["no job and no worker uses queue nope; what is set holds when one does"]
    for path in ("default:pause", "default:resume"):
        assert "warnings" not in (await api.post(f"/v1/queues/{path}")).json()
    await HandWorker(api, queues=["idle"]).hello()
    assert "warnings" not in (await api.post("/v1/queues/idle:pause")).json()


async def test_everything_of_a_tenant_and_all_tenants_can_be_paused(api: httpx.AsyncClient) -> None:
    worker = HandWorker(api, queues=["a", "b"])
    await worker.hello()
    await submit(api, 1, "a")
    await submit(api, 1, "b")
    assert (await api.post("/v1/pause")).json()["paused"] is True
    assert (await worker.exchange(free=5)).runs == []
    assert (await api.post("/v1/pause", json={"all_tenants": True})).status_code == 200
    assert (await api.post("/v1/resume")).status_code == 200
    assert (await worker.exchange(free=5)).runs == []
    queues = (await api.get("/v1/queues")).json()["queues"]
    assert {queue["paused_why"] for queue in queues} == {"all tenants are paused by the instance administrator (test)"}
    assert (await api.post("/v1/resume", json={"all_tenants": True})).status_code == 200
    assert len((await worker.exchange(free=5)).runs) == 2


async def test_resume_and_a_freed_place_wake_a_waiting_worker(api: httpx.AsyncClient, assembly: Assembly) -> None:
    await submit(api, 2)
    await put(api, concurrency=1, paused=True)
    busy, waiting = HandWorker(api), HandWorker(api)
    await busy.hello()
    await waiting.hello()
    poll = asyncio.create_task(busy.exchange(free=1, wait_ms=10_000))
    await until_waiting(assembly, 1)
    await put(api, paused=False)
    [order] = (await poll).runs
    poll = asyncio.create_task(waiting.exchange(free=1, wait_ms=10_000))
    await until_waiting(assembly, 1)
    await busy.report(outcome(order))
    assert len((await poll).runs) == 1


async def until_waiting(assembly: Assembly, count: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while sum(waiter.demand.free > 0 for waiter in assembly.long_polls._waiters.values()) < count:
            await asyncio.sleep(0)


async def test_an_interrupted_change_is_finished_by_any_server(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    await submit(api, 3)
    worker = HandWorker(api)
    await worker.claim(1)
    await put(api, max_depth=100)
    # The server died after its commit, before it counted what runs.
    await connection.execute("update mainspring.gates set concurrency = 2, counted = false")
    await connection.execute("update mainspring.gate_revision set revision = revision + 1")
    assert (await worker.exchange(free=5)).runs == []
    [keeper] = [task for task in assembly.periodic_tasks if isinstance(task, GateKeeper)]
    assert await keeper.run_once() == 1
    assert len((await worker.exchange(free=5)).runs) == 1
    await check_counts(connection)


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"concurrency": 0}, "concurrency", "pause"),
        ({"concurrency": -1}, "concurrency", "1 to"),
        ({"concurrency": 1.5}, "concurrency", "whole number"),
        ({"concurrency": True}, "concurrency", "whole number"),
        ({"rate": "100 per fortnight"}, "rate", "100/m"),
        ({"rate": "0/s"}, "rate", "pause"),
        ({"rate": "1000001/s"}, "rate", "at most"),
        ({"rate": 100}, "rate", ""),
        ({"rate": {"rate": "1/s", "burst": 0}}, "rate.burst", "1 to"),
        ({"rate": {"rate": "x"}}, "rate.rate", "100/m"),
        ({"rate": {"burst": 3}}, "rate", "rate"),
        ({"max_depth": 0}, "max_depth", "pause"),
        ({"max_depth": 10**12}, "max_depth", "1 to"),
        ({"paused": "yes"}, "paused", "true or false"),
        ({"paused": None}, "paused", "true or false"),
        ({"concurency": 5}, "concurency", "concurrency"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/queues/default", "/v1/tenant/limits"])
async def test_what_is_no_limit_is_refused(
    api: httpx.AsyncClient, connection: asyncpg.Connection, path: str, body: object, field: str, words: str
) -> None:
    answer = await api.put(path, json=body)
    assert answer.status_code == 422, answer.text
    problem = answer.json()
    assert (problem["field"] or "").startswith(field)
    assert words in answer.text
    assert await gates.all_gates(connection) == []


async def test_fields_that_are_left_out_stay_and_null_removes(api: httpx.AsyncClient) -> None:
    await put(api, concurrency=5, rate={"rate": "60 / minute", "burst": 3}, max_depth=9)
    view = await put(api, concurrency=6)
    assert (view["concurrency"], view["rate"], view["burst"], view["max_depth"]) == (6, "60/m", 3, 9)
    view = await put(api, rate=None, max_depth=None)
    assert (view["concurrency"], view["rate"], view["burst"], view["max_depth"]) == (6, None, None, None)
    assert (await put(api, rate="1000/s"))["burst"] == 100
