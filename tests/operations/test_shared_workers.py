"""Shared workers belong to no tenant. Their runs, output, reports and declarations belong to the tenant of the run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import asyncpg
import httpx
import msgspec
import pytest

from mainspring import Mainspring
from mainspring.kernel.clock import ManualClock
from mainspring.kernel.config import Timing
from mainspring.kernel.ids import EVERY_TENANT, uuid7
from mainspring.operations.read.views import worker_view
from mainspring.operations.signals import Signals
from mainspring.roles.assembly import Assembly
from mainspring.sdk.tasks.declared import declared
from mainspring.upkeep.run_rescuer import RunRescuer
from mainspring.wire.exchange import Progress
from tests.api.bookkeeping import problem
from tests.logs.scene import chunk, ship, text
from tests.operations.hand_worker import HandWorker, held, outcome
from tests.operations.servers import another_server
from tests.operations.tenants import Tenants, several_tenants, shares, whose
from tests.operations.test_long_poll import assembly as assembly
from tests.operations.test_long_poll import start_waiting
from tests.store.rows import all_fall_silent

pytestmark = pytest.mark.anyio


@pytest.fixture
async def tenants(assembly: Assembly, api: httpx.AsyncClient) -> AsyncIterator[Tenants]:
    async with several_tenants(assembly, api) as made:
        await made.add("a", "b")
        yield made


async def run_of(tenants: Tenants, name: str, job_id: str) -> dict[str, Any]:
    answer = await tenants.clients[name].get(f"/v1/runs/{job_id}")
    assert answer.status_code == 200, answer.text
    run: dict[str, Any] = answer.json()
    return run


async def test_runs_of_every_tenant_are_taken_and_reported(tenants: Tenants) -> None:
    made = {name: (await tenants.submit(name))[0] for name in ("default", "a", "b")}
    worker = await tenants.shared_worker()
    told = await worker.hello(free=10)
    orders = told.runs
    assert told.all_tenants
    assert not (await HandWorker(tenants.clients["a"]).hello()).all_tenants
    assert sorted(whose(orders)) == ["a", "b", "default"]
    for name, job_id in made.items():
        running = await run_of(tenants, name, job_id)
        assert (running["status"], running["executor_id"]) == ("RUNNING", str(worker.worker_id))
    await worker.report(
        *(outcome(order, result={"of": name}) for order, name in zip(orders, whose(orders), strict=True))
    )
    for name, job_id in made.items():
        ended = await run_of(tenants, name, job_id)
        assert (ended["status"], ended["result"]) == ("SUCCESS", {"of": name})


async def test_what_runs_print_lies_with_their_tenant(
    tenants: Tenants, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    for name in ("a", "b"):
        await tenants.submit(name)
    worker = await tenants.shared_worker()
    orders = (await worker.hello(free=2)).runs
    receipt = await ship(worker, *(chunk(order, 0, whose([order])[0].encode()) for order in orders))
    assert (receipt.stored, receipt.fenced, receipt.gaps) == (2, [], [])
    receipt = await ship(worker, *(chunk(order, 1, b" and more", end=True) for order in orders))
    assert receipt.stored == 2
    for order, name in zip(orders, whose(orders), strict=True):
        assert await text(tenants.clients[name], order.run_id) == f"{name} and more"
        for other in {"a", "b", "default"} - {name}:
            assert (await tenants.clients[other].get(f"/v1/runs/{order.run_id}/logs")).status_code == 404
    rows = await connection.fetch("select run_id, tenant_id from mainspring.run_logs")
    assert {row["run_id"]: row["tenant_id"] for row in rows} == {
        order.run_id: tenants.ids[name] for order, name in zip(orders, whose(orders), strict=True)
    }


async def test_progress_is_taken_from_whoever_holds_the_run(tenants: Tenants) -> None:
    [job_id] = await tenants.submit("a")
    worker, other = await tenants.shared_worker(), await tenants.shared_worker()
    [order] = (await worker.hello(free=1)).runs
    await other.hello()
    word = Progress(order.run_id, order.fence, 1, 0.25, "a quarter")
    assert (await other.exchange(progress=[word])).fenced == [order.run_id]
    assert (await run_of(tenants, "a", job_id))["progress"] is None
    assert (await worker.exchange(progress=[word])).fenced == []
    assert (await run_of(tenants, "a", job_id))["progress"] == {"fraction": 0.25, "message": "a quarter"}


async def test_nobody_speaks_for_a_worker_of_somebody_else(tenants: Tenants, assembly: Assembly) -> None:
    """The id of a shared worker is shown to every tenant. It is not a credential."""
    await tenants.submit("a", 2)
    shared = await tenants.shared_worker()
    orders = (await shared.hello(free=1)).runs
    own = HandWorker(tenants.clients["a"])
    orders += (await own.hello(free=1)).runs
    waiting = await start_waiting(assembly, shared)
    for worker, order, api in ((shared, orders[0], tenants.clients["a"]), (own, orders[1], shared.api)):
        thief = HandWorker(api)
        thief.worker_id, thief.seq = worker.worker_id, worker.seq
        word = Progress(order.run_id, order.fence, 1, 0.5, "another worker's")
        for fields in ({"outcomes": [outcome(order)]}, {"free": 5}, {"progress": [word]}, {"recover": True}):
            assert problem(await thief.ask(**fields))["code"] == "unknown_worker"
        assert problem(await thief.ask(hello=thief.card))["code"] in ("unknown_worker", "fenced")
        assert (await ship(thief, chunk(order, 0, b"not yours"))).fenced == [order.run_id]
    assert not waiting.done(), "the worker itself is not disturbed"
    assembly.long_polls.close()
    await waiting
    await shared.report(outcome(orders[0]))


async def test_a_shared_worker_is_woken_by_any_tenant(tenants: Tenants, assembly: Assembly) -> None:
    worker = await tenants.shared_worker()
    for name in ("b", "a", "default"):
        waiting = await start_waiting(assembly, worker)
        made = await tenants.submit(name)
        assert [order.job_id for order in (await waiting).runs] == made


async def test_many_lanes_of_one_tenant_do_not_crowd_anothers_out_of_what_servers_tell_each_other(
    assembly: Assembly,
) -> None:
    signals = Signals(assembly.store)
    signals.ready.publish(dict.fromkeys(range(1, 251), 1))
    told = [message.removeprefix("ready ").split(",") for message in signals._take_messages()]
    assert [len(part) for part in told] == [100, 100, 50]
    assert [word for part in told for word in part] == [f"{lane_id}:1" for lane_id in range(1, 251)]


async def test_a_burst_of_one_tenant_and_a_run_of_another_are_all_taken(tenants: Tenants, assembly: Assembly) -> None:
    workers = [await tenants.shared_worker() for _ in range(2)]
    waiting = [await start_waiting(assembly, worker, free=3) for worker in workers]
    await tenants.submit("a", 20)
    await tenants.submit("b")
    orders = [order for task in waiting for order in (await task).runs]
    while left := (await workers[0].exchange(free=3)).runs:
        orders += left
    assert shares(orders) == {"a": 20, "b": 1}


async def test_a_run_waits_for_no_worker_when_a_shared_one_offers_its_task(tenants: Tenants) -> None:
    [job_id] = await tenants.submit("a", task="x")
    run = await run_of(tenants, "a", job_id)
    assert run["reason"] == "no worker offers task x"
    worker = await tenants.shared_worker(tasks=["x"])
    await worker.hello()
    assert (await run_of(tenants, "a", job_id))["reason"] == "waiting for a free slot"
    queues = (await tenants.clients["a"].get("/v1/queues/default")).json()
    assert queues["workers"] == 1
    tasks = (await tenants.clients["b"].get("/v1/tasks")).json()["tasks"]
    assert [(task["task"], task["workers"]) for task in tasks] == [("x", 1)]
    assert 'mainspring_workers{state="LIVE"} 1.0' in (await tenants.clients["b"].get("/metrics")).text


async def test_tenants_see_their_own_workers_and_shared_ones(tenants: Tenants) -> None:
    shared, own = await tenants.shared_worker(), HandWorker(tenants.clients["a"])
    for worker in (shared, own):
        await worker.hello()
    for name, expected in (("a", {shared: True, own: False}), ("b", {shared: True}), ("default", {shared: True})):
        listed = (await tenants.clients[name].get("/v1/workers")).json()["workers"]
        assert {view["worker_id"]: view["shared"] for view in listed} == {
            str(worker.worker_id): flag for worker, flag in expected.items()
        }
    assert (await tenants.clients["b"].get(f"/v1/workers/{own.worker_id}")).status_code == 404


async def test_only_the_operator_drains_a_shared_worker(tenants: Tenants, assembly: Assembly) -> None:
    worker = await tenants.shared_worker()
    waiting = await start_waiting(assembly, worker)
    address = f"/v1/workers/{worker.worker_id}:drain"
    refused = problem(await tenants.clients["a"].post(address))
    assert (refused["status"], refused["code"]) == (403, "instance_admin_only")
    assert not waiting.done()
    assert (await tenants.operator.post(address)).status_code == 202
    assert (await waiting).drain, "it is told at once, and not when its exchange times out"
    own = HandWorker(tenants.clients["a"])
    await own.hello()
    assert (await tenants.operator.post(f"/v1/workers/{own.worker_id}:drain")).status_code == 404


async def test_a_worker_that_waits_with_a_revoked_token_is_given_nothing_more(
    tenants: Tenants, assembly: Assembly
) -> None:
    made = await tenants.token(role="worker", tenants="all")
    worker = HandWorker(await tenants.client(made["token"]))
    waiting = await start_waiting(assembly, worker)
    assert (await tenants.operator.post(f"/v1/tokens/{made['token_id']}:revoke")).status_code == 200
    await tenants.submit("a")
    reply = await waiting
    assert (reply.superseded, reply.runs) == (True, [])
    assert (await worker.ask(free=1)).status_code == 401


async def test_a_revocation_disturbs_nobody_elses_workers(tenants: Tenants, assembly: Assembly) -> None:
    """Otherwise an admin who creates and revokes tokens in a loop would wake the workers of all tenants."""
    others = [await tenants.shared_worker(), HandWorker(tenants.clients["b"]), HandWorker(tenants.operator)]
    waiting = [await start_waiting(assembly, worker) for worker in others]
    ending = await start_waiting(assembly, HandWorker(tenants.clients["a"]))
    made = (await tenants.clients["a"].post("/v1/tokens", json={"role": "worker", "name": "x"})).json()
    assert (await tenants.clients["a"].post(f"/v1/tokens/{made['token_id']}:revoke")).status_code == 200
    assert (await ending).superseded
    assert not any(reply.done() for reply in waiting)
    assembly.long_polls.close()
    await asyncio.gather(*waiting)


async def test_a_cancel_reaches_a_shared_worker_at_once(tenants: Tenants, assembly: Assembly) -> None:
    [job_id] = await tenants.submit("a")
    worker = await tenants.shared_worker()
    [order] = (await worker.hello(free=1)).runs
    waiting = await start_waiting(assembly, worker)
    assert (await tenants.clients["a"].post(f"/v1/runs/{job_id}:cancel")).status_code == 202
    assert (await waiting).stop == [order.run_id]
    await worker.report(outcome(order, "CANCELLED"))
    assert (await run_of(tenants, "a", job_id))["status"] == "CANCELLED"


async def test_claims_whose_answer_was_lost_are_handed_out_again(tenants: Tenants, database_url: str) -> None:
    for name in ("a", "b"):
        await tenants.submit(name, 2)
    worker = await tenants.shared_worker()
    orders = (await worker.hello(free=4)).runs
    kept = [order for order in orders if whose([order]) == ["a"]]
    async with another_server(database_url, token=tenants.shared_token) as elsewhere:
        worker.api = elsewhere  # another server, which has only the rows
        again = (await worker.exchange(recover=True, inventory=held(*kept))).runs
    assert {order.run_id for order in again} == {order.run_id for order in orders} - {order.run_id for order in kept}
    assert shares(again) == {"b": 2}


async def test_runs_of_a_lost_shared_worker_go_on_elsewhere_each_with_its_tenant(
    tenants: Tenants, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    for name in ("a", "b"):
        await tenants.submit(name)
    lost = await tenants.shared_worker()
    orders = (await lost.hello(free=2)).runs
    await all_fall_silent(connection)
    clock = ManualClock(assembly.services.clock.wall())
    rescuer = RunRescuer(assembly.store, Signals(assembly.store), clock, Timing(rescue=600.0), lambda: 0.5)
    assert await rescuer.run_once() == 0
    clock.advance(600.0)
    assert await rescuer.run_once() == 2
    assert problem(await lost.ask(outcomes=[outcome(order) for order in orders]))["code"] == "fenced"
    own = HandWorker(tenants.clients["a"])
    assert shares((await own.hello(free=5)).runs) == {"a": 1}
    other = await tenants.shared_worker()
    [order] = (await other.hello(free=5)).runs
    assert (whose([order]), order.attempt) == (["b"], 2)


async def test_an_idle_shared_worker_gets_what_a_tenants_busy_one_has_not_started_and_not_the_other_way_round(
    tenants: Tenants, assembly: Assembly
) -> None:
    await tenants.submit("a", 4)
    busy, idle = HandWorker(tenants.clients["a"]), await tenants.shared_worker()
    await busy.claim(4)
    waiting = await start_waiting(assembly, idle, free=2)
    assert (await busy.exchange(free=0, unstarted=3, wait_ms=9000)).recall == 2
    assert not waiting.done()
    assembly.long_polls.close()
    await waiting
    waiting = await start_waiting(assembly, HandWorker(tenants.clients["b"]), free=2)
    holding = await start_waiting(assembly, idle, free=0, unstarted=3)
    assert not holding.done(), "its runs do not belong to b"
    assembly.long_polls.close()
    assert (await holding).recall == 0
    await waiting


# --- declarations of tasks


def charge(account: str) -> None: ...


def charge_more(account: str, cents: int) -> None: ...


async def offer(worker: HandWorker, function: Any, **options: Any) -> None:
    app = Mainspring()
    app.task("charge", **options)(function)
    worker.card = msgspec.structs.replace(worker.card, tasks=["charge"], signatures=declared(app.tasks.values()))
    await worker.hello()


async def test_what_a_shared_worker_declares_holds_for_tenants_that_declare_nothing_themselves(
    tenants: Tenants, connection: asyncpg.Connection
) -> None:
    await offer(await tenants.shared_worker(), charge, queue="heavy")
    own = HandWorker(tenants.clients["b"])
    await offer(own, charge_more)
    body = {"task": "charge", "payload": {"account": "x"}}
    made = await tenants.clients["a"].post("/v1/jobs", json=body)
    assert made.status_code == 201, made.text
    assert (await run_of(tenants, "a", made.json()["job_id"]))["queue"] == "heavy"
    assert problem(await tenants.clients["a"].post("/v1/jobs", json={"task": "charge"}))["field"] == "payload.account"
    refused = problem(await tenants.clients["b"].post("/v1/jobs", json=body))
    assert refused["field"] == "payload.cents", "the declaration of b's own worker applies to b"
    [a_task] = (await tenants.clients["a"].get("/v1/tasks")).json()["tasks"]
    [b_task] = (await tenants.clients["b"].get("/v1/tasks")).json()["tasks"]
    assert (list(a_task["payload_schema"]["properties"]), a_task["workers"]) == (["account"], 1)
    assert (list(b_task["payload_schema"]["properties"]), b_task["workers"]) == (["account", "cents"], 2)
    in_sql = await connection.fetchval(
        """select mainspring.submit('{"task": "charge", "payload": {"account": "x"}}')"""
    )
    assert (await run_of(tenants, "default", in_sql))["queue"] == "heavy"


async def test_a_change_of_the_shared_declaration_is_seen(tenants: Tenants) -> None:
    worker = await tenants.shared_worker()
    await offer(worker, charge)
    assert (await tenants.clients["a"].post("/v1/jobs", json={"task": "charge"})).status_code == 422
    other = await tenants.shared_worker(tasks=["charge"])
    await other.hello()  # the newest declaration applies: it accepts any payload
    assert (await tenants.clients["a"].post("/v1/jobs", json={"task": "charge"})).status_code == 201


async def test_a_shared_workers_row_is_of_no_tenant(tenants: Tenants, connection: asyncpg.Connection) -> None:
    worker = await tenants.shared_worker()
    await worker.hello()
    row = await connection.fetchrow("select * from mainspring.workers where worker_id = $1", worker.worker_id)
    assert row["tenant_id"] == EVERY_TENANT
    ghost = await tenants.shared_worker()
    ghost.worker_id = uuid7()
    assert problem(await ghost.ask(free=1))["code"] == "unknown_worker"


def test_a_worker_is_never_shown_with_more_running_than_it_has_slots() -> None:
    """Runs that have ended count as running until their report arrives."""
    now = datetime.now(UTC)
    fields = {
        "worker_id": uuid7(), "name": "w", "state": 1, "queues": ["default"], "tasks": ["t"], "slots": 8, "running": 11,
        "holding": 14, "labels": {}, "version": "1", "registered_at": now, "last_beat_at": now, "tenant_id": 1,
        "left_out": [],
    }  # fmt: skip
    view = worker_view(SimpleNamespace(**fields))  # type: ignore[arg-type]
    assert (view.running, view.slots, view.holding) == (8, 8, 14)
