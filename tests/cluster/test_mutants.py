"""Tests the checker: each of nine guards is removed in turn, and the rules must find that. The same scenes without a
mutant must have no violations."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from mainspring.wire.exchange import ExchangeReply, RunOrder
from mainspring.wire.protocol import PROTOCOL, SECRET_HEADER, WORKER_HEADER
from tests.cluster.arena import Arena, Shape
from tests.cluster.children import SCHEDULER, SERVER, WORKER, Child
from tests.cluster.history import BUSY, History, Injection, Report
from tests.cluster.line_book import SET
from tests.cluster.load import Clients
from tests.cluster.mutant import AFTER_THE_STOP, MUTANTS
from tests.cluster.proxy import Way
from tests.cluster.recovery import at_rest
from tests.cluster.rules import judge
from tests.cluster.witness import gather
from tests.operations.hand_worker import HandWorker, outcome
from tests.processes.cluster import eventually

pytestmark = pytest.mark.anyio

CRON = {"job_id": "target", "task": "note", "schedule": "* * * * * *", "overlap": "allow"}
PATIENCE = 300.0  # ends a test that hangs
ROUNDS = 5  # of a scene in which an exchange may end before the job arrives for which it waits
Scene = Callable[[str | None], Awaitable[History]]


async def fire_after_the_shard_has_gone_to_another(mutant: str | None) -> History:
    """A node stops between its plan and its fire. Another node gets the shard. The first node continues and fires."""
    async with stage(mutant, Shape(schedulers=2, servers=1, workers=0), before="fire_recurring") as (arena, clients):
        first, second = arena.seats_of(SCHEDULER)
        await clients.submit(CRON)
        await eventually(lambda: stopped(arena, first.index), PATIENCE, "the first node stands before its fire")
        hold = Injection("failpoint", "both nodes", time.monotonic(), whole=True)
        arena.injections.append(hold)
        arena.spawn(second)
        await eventually(
            lambda: stopped(arena, second.index), PATIENCE, "the second node owns the shard and is about to fire"
        )
        first.child.go_on()
        await eventually(lambda: has_fired(first.child), PATIENCE, "the first node has fired, or tried to")
        await rounds(arena, first.child.label, 2)
        second.child.go_on()
        hold.end = time.monotonic()
        await eventually(lambda: caught_up(arena), PATIENCE, "the job is on time again")
        await clients.steer("target", "pause")
        return await gather(arena, clients.calls, at_rest=False)


async def fire_after_the_job_was_changed(mutant: str | None) -> History:
    """A node stops between its plan and its fire. The job is changed and paused, and the node continues."""
    async with stage(mutant, Shape(schedulers=1, servers=1, workers=0), before="fire_recurring") as (arena, clients):
        (node,) = arena.seats_of(SCHEDULER)
        await clients.submit(CRON)
        await eventually(lambda: stopped(arena, 0), PATIENCE, "the node stands before its fire")
        hold = Injection("failpoint", "the node", time.monotonic(), whole=True)
        arena.injections.append(hold)
        # On a busy machine the stop is longer than a lease, and the node would get its shards under another epoch.
        await arena.ask(
            "update mainspring.shard_leases set expires_at = expires_at + interval '1 hour' returning shard"
        )
        for call in (await clients.steer("target", "pause"), await clients.change("target", {"payload": {"n": 2}})):
            assert call.result == "ok", call
        node.child.go_on()
        hold.end = time.monotonic()
        await eventually(lambda: has_fired(node.child), PATIENCE, "the node has fired, or tried to")
        return await gather(arena, clients.calls, at_rest=False)


async def outcome_of_an_earlier_attempt(mutant: str | None) -> History:
    """An attempt fails, the same worker gets the next one, and the first attempt is reported again."""
    async with (
        stage(mutant, Shape(schedulers=0, servers=1, workers=0)) as (arena, clients),
        arena.client(PATIENCE) as http,
    ):
        retry = {"max_attempts": 3, "backoff": "constant", "base": "10ms", "jitter": 0}
        await clients.submit({"task": "noop", "retry": retry})
        worker, reports = HandWorker(http), []
        first = await claim_one(worker)
        effect(arena, first, "start", "fail")
        reports.append(await report(worker, first, "FAILED", error="no"))
        second = await claim_one(worker)
        effect(arena, second, "start")
        reports.append(await report(worker, first, "SUCCESS"))
        await asyncio.sleep(0.1)  # so that the times in the ledger differ
        effect(arena, second, "end")
        reports.append(await report(worker, second, "SUCCESS"))
        return await gather(arena, clients.calls, reports)


async def claim_of_a_running_run(mutant: str | None) -> History:
    """One worker has the run, and another one asks for runs."""
    async with (
        stage(mutant, Shape(schedulers=0, servers=1, workers=0)) as (arena, clients),
        arena.client(PATIENCE) as http,
    ):
        await clients.submit({"task": "noop"})
        one, other = HandWorker(http), HandWorker(http)
        order = await claim_one(one)
        effect(arena, order, "start")
        await answered(other, hello=other.card, free=1)
        effect(arena, order, "end")
        await answered(one, outcomes=[outcome(order)])
        return await gather(arena, clients.calls, at_rest=False)


async def late_copy_of_an_exchange(mutant: str | None) -> History:
    """A worker reports a run and asks for none. A late copy of its earlier report, which asked for one, arrives. Nobody
    reads the answer to the copy."""
    async with (
        stage(mutant, Shape(schedulers=0, servers=1, workers=0)) as (arena, clients),
        arena.client(PATIENCE) as http,
    ):
        await clients.submit({"task": "noop"})
        worker, other = HandWorker(http), HandWorker(http)
        worker.card.protocol = PROTOCOL.number  # so that its exchanges are grouped
        first = await claim_one(worker)
        effect(arena, first, "start", "end")
        reports = [await report(worker, first, "SUCCESS")]
        copied = worker.seq
        await answered(worker, recover=True)
        await clients.submit({"task": "noop"})
        copy = HandWorker(http)
        copy.worker_id, copy.seq = worker.worker_id, copied - 1
        await copy.ask(free=1, outcomes=[outcome(first)])
        reply = await answered(other, hello=other.card, free=1)
        for order in reply.runs:
            effect(arena, order, "start", "end")
            reports.append(await report(other, order, "SUCCESS"))
        await at_rest(arena, PATIENCE if mutant is None else 5)
        return await gather(arena, clients.calls, reports)


async def hand_off_to_a_worker_that_has_gone_on(mutant: str | None) -> History:
    """A worker waits at one server, and sends a newer exchange to another. A job is submitted to the first. Nobody
    reads the answer to the exchange that waits there."""
    async with (
        stage(mutant, Shape(schedulers=0, servers=2, workers=0)) as (arena, clients),
        direct(arena, 0) as first,
        direct(arena, 1) as second,
    ):
        clients._http = first
        worker = grouped_worker(first)
        reports = [await one_run(arena, clients, worker)]
        for _ in range(ROUNDS):
            worker.api = first
            waits = await long_poll(worker)
            worker.api = second
            await answered(worker, recover=True)
            await clients.submit({"task": "noop"})
            await waits
            if await arena.ask("select from mainspring.runs where state = 2"):
                break
            reports.append(await take_one(arena, grouped_worker(second)))
        await at_rest(arena, PATIENCE if mutant is None else 5)
        return await gather(arena, clients.calls, reports)


async def hand_off_through_a_pause(mutant: str | None) -> History:
    """A worker waits, its queue is paused, and a job is submitted."""
    async with (
        stage(mutant, Shape(schedulers=0, servers=1, workers=0)) as (arena, clients),
        arena.client(PATIENCE) as http,
    ):
        worker = grouped_worker(http)
        reports = [await one_run(arena, clients, worker)]
        assert (await clients.insist(SET, "POST", "/v1/queues/default:pause")).result == "ok"
        for _ in range(ROUNDS):
            waits = await long_poll(worker)
            await clients.submit({"task": "noop"})
            await waits
            if await arena.ask("select from mainspring.runs where state = 2"):
                break
        return await gather(arena, clients.calls, reports, at_rest=False)


async def claim_whose_answer_was_lost(mutant: str | None) -> History:
    """The server gives a run to a worker, and the response is lost after the commit."""
    async with stage(mutant, Shape(schedulers=0, servers=1, workers=1)) as (arena, clients):
        arena.spawn(arena.seat(WORKER, 0))
        await eventually(lambda: waiting(arena), PATIENCE, "the worker waits for runs")
        await lose_the_answer_to_a_claim(arena, clients)
        await at_rest(arena, PATIENCE if mutant is None else 5)
        return await gather(arena, clients.calls)


async def deaths_of_workers_with_two_runs(mutant: str | None) -> History:
    """Two runs are lost twice, each time together."""
    async with (
        stage(mutant, Shape(schedulers=0, servers=1, workers=0)) as (arena, clients),
        arena.client(PATIENCE) as http,
    ):
        for _ in range(2):
            await clients.submit({"task": "noop"})
        for _ in range(2):
            worker = HandWorker(http)
            worker.secret = "5e" * 32
            for order in [await claim_one(worker), await claim_one(worker)]:
                effect(arena, order, "start")
            notice = {"worker_id": str(worker.worker_id), "secret": worker.secret, "cause": "crashed"}
            proof = {WORKER_HEADER: str(worker.worker_id), SECRET_HEADER: worker.secret}
            body = {**notice, "exit": "killed by SIGKILL"}
            answer = await http.post("/v1/exchange/gone", json=body, headers=proof)
            assert answer.status_code == 200, answer.text
        return await gather(arena, clients.calls, at_rest=False)


SCENES: dict[str, tuple[Scene, str]] = {
    "epoch": (fire_after_the_shard_has_gone_to_another, "S3"),
    "version": (fire_after_the_job_was_changed, "S2"),
    "fence": (outcome_of_an_earlier_attempt, "S5"),
    "state": (claim_of_a_running_run, "S4"),
    "number": (late_copy_of_an_exchange, "L5"),
    "taker": (hand_off_to_a_worker_that_has_gone_on, "L5"),
    "pause": (hand_off_through_a_pause, "S10"),
    "redelivery": (claim_whose_answer_was_lost, "L5"),
    "neighbours": (deaths_of_workers_with_two_runs, "S14"),
}


def test_every_mutant_has_its_scene() -> None:
    assert SCENES.keys() == MUTANTS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("guard", SCENES)
async def test_the_checker_finds_that_a_guard_is_missing_and_nothing_when_it_is_there(guard: str) -> None:
    scene, rule = SCENES[guard]
    histories = await asyncio.gather(scene(guard), scene(None))
    for history in histories:
        history.machine = BUSY
    without, with_it = map(judge, histories)
    assert rule in {violation.rule for violation in without}, [str(violation) for violation in without]
    assert [str(violation) for violation in with_it] == []


# -- helpers


@asynccontextmanager
async def stage(mutant: str | None, shape: Shape, before: str | None = None) -> AsyncIterator[tuple[Arena, Clients]]:
    """A cluster with servers and the first scheduler. Nodes stop `before` their first fire of the target."""
    arena = Arena(shape)
    try:
        for seat in arena.seats:
            seat.kept_down = seat.role == WORKER or (seat.role, seat.index) == (SCHEDULER, 1)
            if seat.role != WORKER:
                seat.patches = {"ARENA_MUTANT": mutant} if mutant else {}
            if seat.role == SCHEDULER:
                seat.patches["ARENA_STOP_BEFORE"] = f"{before}:target"
        await arena.start_database()
        await arena.open_links()
        for seat in arena.seats:
            if not seat.kept_down:
                arena.spawn(seat)
        await arena.all_ready()
        async with arena.client(PATIENCE) as http:
            yield arena, Clients(http)
    finally:
        await arena.close()


async def stopped(arena: Arena, index: int) -> bool:
    child = arena.seat(SCHEDULER, index).child
    assert child is not None and child.alive, child and child.last_words()
    return child.stopped


async def has_fired(child: Child) -> bool:
    """Wait until the fire before which it stopped is complete."""
    return AFTER_THE_STOP in child.log.read_text(errors="replace")


async def rounds(arena: Arena, label: str, count: int) -> None:
    """Wait for rounds of the node's lease thread. Pending work of its event loop is done by then."""
    query = (
        "select seen_at from mainspring.nodes where node_id::text = "
        "(select new ->> 'node_id' from cluster_audit.events where tbl = 'nodes' and process = $1)"
    )
    for _ in range(count + 1):
        before = await arena.ask(query, label)

        async def moved(before: Any = before) -> bool:
            return await arena.ask(query, label) != before

        await eventually(moved, PATIENCE, f"{label} goes round")


async def caught_up(arena: Arena) -> bool:
    rows = await arena.ask("select next_fire_at > clock_timestamp() as ahead from mainspring.jobs")
    return bool(rows) and all(row["ahead"] for row in rows)


async def claim_one(worker: HandWorker) -> RunOrder:
    """Claim until there is a run, because a retry is not ready at once."""
    for _ in range(100):
        reply = await answered(worker, free=1, wait_ms=1000, hello=None if worker.seq else worker.card)
        if reply.runs:
            return reply.runs[0]
    raise AssertionError("no run to claim")


async def answered(worker: HandWorker, **fields: Any) -> ExchangeReply:
    """The reply of a server that had time for the exchange. One that has too much to do gives up after a second, writes
    nothing and answers `superseded`; a worker asks again."""

    async def asked() -> ExchangeReply | None:
        reply = await worker.exchange(**fields)
        return None if reply.superseded else reply

    reply = await eventually(asked, PATIENCE, "the server has time for an exchange")
    assert reply is not None
    return reply


async def report(worker: HandWorker, order: RunOrder, status: str, **fields: Any) -> Report:
    began = time.monotonic()
    reply = await answered(worker, outcomes=[outcome(order, status, **fields)])
    taken = order.run_id not in reply.fenced
    return Report(str(order.run_id), order.fence, status, began, time.monotonic(), taken)


def effect(arena: Arena, order: RunOrder, *whats: str) -> None:
    """Write the ledger lines of a simulated attempt."""
    with arena.ledger.open("a") as ledger:
        for what in whats:
            line = {
                "run": str(order.run_id), "attempt": order.attempt, "job": order.job_id, "what": what,
                "pid": os.getpid(), "at": time.monotonic(),
            }  # fmt: skip
            ledger.write(json.dumps(line) + "\n")


def direct(arena: Arena, index: int) -> httpx.AsyncClient:
    """A client of one server."""
    http = arena.client(PATIENCE)
    http.base_url = f"http://127.0.0.1:{arena.port(arena.seat(SERVER, index))}"
    return http


def grouped_worker(http: httpx.AsyncClient) -> HandWorker:
    """A worker whose exchanges are grouped, and to which runs are handed off."""
    worker = HandWorker(http)
    worker.card.protocol = PROTOCOL.number
    return worker


async def one_run(arena: Arena, clients: Clients, worker: HandWorker) -> Report:
    """Submit a job, and let the worker run it. From then on its server knows the lane."""
    await clients.submit({"task": "noop"})
    return await take_one(arena, worker)


async def take_one(arena: Arena, worker: HandWorker) -> Report:
    order = await claim_one(worker)
    effect(arena, order, "start", "end")
    return await report(worker, order, "SUCCESS")


async def long_poll(worker: HandWorker) -> asyncio.Task[httpx.Response]:
    """Send an exchange that waits for runs. It has most likely begun to wait."""
    asked = asyncio.create_task(worker.ask(free=1, wait_ms=10_000))
    await asyncio.sleep(0.3)
    return asked


async def waiting(arena: Arena) -> bool:
    """Whether the worker knows its lease. From then on its exchanges ask for runs, and wait in a long poll. Before, it
    repeats its registration if the answer is lost, and claims nothing."""
    child = arena.seat(WORKER, 0).child
    return child is not None and "lease granted" in child.log.read_text(errors="replace")


async def lose_the_answer_to_a_claim(arena: Arena, clients: Clients) -> None:
    """Only the answer with the run is dropped: those to polls that find nothing arrive, so the worker goes on asking,
    however slow the machine is."""
    link = arena.balancer(arena.seat(WORKER, 0).name)
    arena.links.disturb(link, Way.DROP_ANSWER, only=b'"run_id"')
    call = await clients.submit({"task": "note"})
    assert call.result == "ok", call

    async def dropped() -> bool:
        return link.dropped > 0

    await eventually(dropped, PATIENCE, "the answer with the run was dropped")
    arena.links.heal(link)
