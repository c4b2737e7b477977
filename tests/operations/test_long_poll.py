"""Long polls: an exchange waits at a server, and is woken for a reason."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.kernel.clock import SystemClock
from mainspring.kernel.config import Timing
from mainspring.kernel.ids import DEFAULT_TENANT, uuid7
from mainspring.operations.claim.long_poll import LongPolls, divide
from mainspring.operations.claim.waiter import Demand, Waiter
from mainspring.roles.assembly import Assembly, assemble
from mainspring.wire.exchange import ExchangeReply, ExchangeRequest
from mainspring.wire.protocol import PROTOCOL
from tests.eventually import PATIENCE
from tests.operations.firing import fire_due, let_backoff_pass
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.servers import another_server
from tests.operations.waiting import until

pytestmark = pytest.mark.anyio

LongPoll = asyncio.Task[ExchangeReply]
LONG_POLL = 100_000  # milliseconds; longer than any test takes, also on a slow machine
PROMPTLY = 60.0  # seconds; less than a long poll waits


class PatientRequest(ExchangeRequest, forbid_unknown_fields=True, omit_defaults=True):
    """A request that may wait for longer than ten seconds."""

    wait_ms: int = 0


@pytest.fixture
async def assembly(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Assembly]:
    """A server with slow heartbeats, at which an exchange may wait as long as a test needs."""
    monkeypatch.setattr("mainspring.api.bodies._decode_exchange", msgspec.json.Decoder(PatientRequest).decode)
    slow = Timing(
        beat=120.0, kill=240.0, rescue=360.0, exclusive_kill=240.0, exclusive_rescue=360.0, base_kill=240.0,
        base_rescue=360.0, cut_off_grace=240.0,
    )  # fmt: skip
    put_together = await assemble(database_url, SystemClock(), timing=slow, chance=lambda: 0.5)
    yield put_together
    await put_together.close()


async def start_waiting(assembly: Assembly, worker: HandWorker, **fields: Any) -> LongPoll:
    """Send a long poll. Return once it waits at the server."""
    if not worker.seq:
        await worker.hello()
    async with until_it_waits(assembly.long_polls, worker.worker_id):
        return asyncio.create_task(worker.exchange(**{"free": 1, "wait_ms": LONG_POLL, **fields}))


@asynccontextmanager
async def until_it_waits(long_polls: LongPolls, worker_id: UUID) -> AsyncIterator[None]:
    """Leave the block once the exchange that was sent in it waits. One that has only arrived may still look for runs
    after the next step of the test."""
    waits = asyncio.Event()

    def start_and_tell(waiter: Waiter) -> None:
        LongPolls.start_waiting(long_polls, waiter)
        if waiter.worker_id == worker_id:
            waits.set()

    long_polls.start_waiting = start_and_tell  # type: ignore[method-assign]
    try:
        yield
        async with asyncio.timeout(PATIENCE):
            await waits.wait()
    finally:
        del long_polls.start_waiting


async def submit(api: httpx.AsyncClient, **fields: Any) -> str:
    answer = await api.post("/v1/jobs", json={"task": "noop", **fields})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["job_id"])


async def test_a_submit_wakes_a_waiting_worker(api: httpx.AsyncClient, assembly: Assembly) -> None:
    worker = HandWorker(api)
    await submit(api)
    await worker.claim()  # now the server knows the lane
    waiting = await start_waiting(assembly, worker)
    job_id = await submit(api)
    assert [order.job_id for order in (await waiting).runs] == [job_id]
    assert len(assembly.long_polls) == 0


async def test_a_submit_into_a_lane_that_is_new_wakes_it_too(api: httpx.AsyncClient, assembly: Assembly) -> None:
    worker = HandWorker(api, tasks=["noop", "other"], queues=["default", "heavy"])
    for fields in ({}, {"priority": "high"}, {"task": "other"}, {"queue": "heavy"}):
        waiting = await start_waiting(assembly, worker)
        job_id = await submit(api, **fields)
        assert [order.job_id for order in (await waiting).runs] == [job_id]


async def test_a_fire_and_a_run_now_wake_it(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    worker = HandWorker(api)
    waiting = await start_waiting(assembly, worker)
    job_id = await submit(api, schedule="@daily")
    await api.post(f"/v1/jobs/{job_id}:runNow")
    assert [order.job_id for order in (await waiting).runs] == [job_id]
    waiting = await start_waiting(assembly, worker)
    due = await submit(api, schedule={"at": "2020-01-01T00:00:00Z"})
    await fire_due(assembly, connection)
    assert [order.job_id for order in (await waiting).runs] == [due]


async def test_a_run_that_comes_back_wakes_the_next_worker(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    first, second = HandWorker(api), HandWorker(api)
    job_id = await submit(api, retry={"base": 0})
    [order] = await first.claim()
    for status in ("RETURNED", "FAILED"):
        waiting = await start_waiting(assembly, second)
        await first.report(outcome(order, status))
        assert [order.job_id for order in (await waiting).runs] == [job_id]
        second.api, first, second = api, second, HandWorker(api)
        [order] = waiting.result().runs


async def submit_many(api: httpx.AsyncClient, count: int, **fields: Any) -> list[str]:
    answer = await api.post("/v1/jobs:batch", json=[{"task": "noop", **fields}] * count)
    assert answer.status_code == 201, answer.text
    return list(answer.json()["job_ids"])


async def test_as_many_are_woken_as_it_takes(api: httpx.AsyncClient, assembly: Assembly) -> None:
    workers = [HandWorker(api) for _ in range(4)]
    waiting = [await start_waiting(assembly, worker, free=2) for worker in workers]
    made = await submit_many(api, 3)
    await until(lambda: sum(task.done() for task in waiting) == 3)
    made.append(await submit(api))
    taken = [order.job_id for task in waiting for order in (await task).runs]
    assert sorted(taken) == sorted(made)


@pytest.mark.parametrize(
    ("slots", "runs", "shares"),
    [
        ([2, 20], 11, [1, 10]),
        ([20, 2], 11, [10, 1]),
        ([5, 5, 5, 5], 8, [2, 2, 2, 2]),
        ([1, 16, 4], 1, [0, 1, 0]),
        ([2, 3], 9, [2, 3]),
    ],
)
async def test_a_burst_is_divided_by_free_slots(
    api: httpx.AsyncClient, assembly: Assembly, slots: list[int], runs: int, shares: list[int]
) -> None:
    waiting = [await start_waiting(assembly, HandWorker(api), free=free) for free in slots]
    made = await submit_many(api, runs)
    await until(lambda: [task.done() for task in waiting] == [share > 0 for share in shares])
    assembly.long_polls.close()
    replies = [await task for task in waiting]
    assert [len(reply.runs) for reply in replies] == shares
    assert {order.job_id for reply in replies for order in reply.runs} <= set(made)


async def test_runs_that_come_one_by_one_go_to_different_workers(api: httpx.AsyncClient, assembly: Assembly) -> None:
    waiting = [await start_waiting(assembly, HandWorker(api), free=4) for _ in range(3)]
    made = [await submit(api) for _ in range(3)]
    taken = [[order.job_id for order in (await task).runs] for task in waiting]
    assert sorted(taken) == sorted([job_id] for job_id in made)


async def test_what_a_worker_was_woken_for_and_does_not_claim_goes_to_the_next(
    api: httpx.AsyncClient, assembly: Assembly
) -> None:
    leaving, staying = HandWorker(api), HandWorker(api)
    ending = await start_waiting(assembly, leaving, free=9)
    waiting = await start_waiting(assembly, staying, free=1)
    [waiter] = [waiter for waiter in assembly.long_polls._waiters.values() if waiter.worker_id == leaving.worker_id]
    waiter.superseded = True  # as if a newer exchange of its worker had just arrived
    job_id = await submit(api)
    assert (await ending).superseded
    async with asyncio.timeout(PROMPTLY):
        assert [order.job_id for order in (await waiting).runs] == [job_id]


@given(st.integers(0, 200), st.lists(st.integers(1, 50), min_size=1, max_size=9))
def test_parts_fit_and_nothing_is_left_out(count: int, rooms: list[int]) -> None:
    rooms.sort(reverse=True)
    parts = divide(count, rooms)
    assert sum(parts) == min(count, sum(rooms))
    for part, room in zip(parts, rooms, strict=True):
        fair = min(count, sum(rooms)) * room / sum(rooms)
        assert 0 <= part <= room and abs(part - fair) < len(rooms)


def test_reserved_runs_count_until_they_are_claimed_also_when_the_demand_changes() -> None:
    long_polls = LongPolls()
    waiter, other = (long_polls.register(uuid7(), DEFAULT_TENANT, 1) for _ in range(2))
    waiter.set_demand(Demand(3, lanes={1, 2}, capacity={1: 2, 2: 3}))
    other.set_demand(Demand(2, lanes={3}))
    long_polls.offer({1: 5, 3: 1})
    assert (waiter.capacity(1), waiter.capacity(2), other.capacity(3)) == (0, 1, 1)
    waiter.set_demand(Demand(4, lanes={1, 2}, capacity={1: 3, 2: 3}))
    assert (waiter.capacity(1), waiter.capacity(2)) == (1, 2)
    assert (waiter.take_reserved(), waiter.capacity(1), waiter.capacity(2)) == (2, 3, 3)
    long_polls.offer({2: 3})
    other.set_demand(Demand(2, lanes={2, 3}))
    long_polls.release(waiter)
    assert other.take_reserved() == 2, "one of its own, and one of the three that were not claimed"


async def test_a_job_for_somebody_else_wakes_nobody(api: httpx.AsyncClient, assembly: Assembly) -> None:
    worker, full = HandWorker(api), HandWorker(api)
    waiting = await start_waiting(assembly, worker)
    waiting_full = await start_waiting(assembly, full, free=0)
    await submit(api, queue="heavy")
    await submit(api, task="other")
    assert not waiting.done() and not waiting_full.done()
    job_id = await submit(api)
    assert [order.job_id for order in (await waiting).runs] == [job_id]
    assert not waiting_full.done(), "it has no free slot"
    assembly.long_polls.close()
    assert (await waiting_full).runs == []


async def test_a_cancel_wakes_it_with_what_to_stop(api: httpx.AsyncClient, assembly: Assembly) -> None:
    worker = HandWorker(api)
    for cancel in (api.delete, None):
        job_id = await submit(api)
        [order] = await worker.claim()
        waiting = await start_waiting(assembly, worker)
        if cancel is not None:
            await cancel(f"/v1/jobs/{job_id}")
        else:
            await api.post(f"/v1/runs/{job_id}:cancel")
        reply = await waiting
        assert (reply.stop, reply.runs) == ([order.run_id], [])
        await worker.report(outcome(order, "CANCELLED"))


async def test_a_cancel_while_no_exchange_was_waiting_is_told_in_the_next(api: httpx.AsyncClient) -> None:
    worker = HandWorker(api)
    job_id = await submit(api)
    [order] = await worker.claim()
    await api.delete(f"/v1/jobs/{job_id}")
    reply = await worker.exchange(free=1, wait_ms=LONG_POLL)
    assert reply.stop == [order.run_id]


async def test_a_cancel_at_another_server_is_told_as_well(
    api: httpx.AsyncClient, assembly: Assembly, database_url: str
) -> None:
    worker = HandWorker(api)
    job_id = await submit(api)
    [order] = await worker.claim()
    async with another_server(database_url) as other:
        await other.delete(f"/v1/jobs/{job_id}")
        worker.api = other
        assert (await worker.exchange()).stop == [order.run_id]


async def test_a_newer_exchange_ends_the_waiting_one(api: httpx.AsyncClient, assembly: Assembly) -> None:
    worker = HandWorker(api)
    waiting = await start_waiting(assembly, worker)
    await worker.exchange()
    reply = await waiting
    assert (reply.superseded, reply.runs) == (True, [])
    job_id = await submit(api)
    assert [order.job_id for order in await worker.claim()] == [job_id], "the exchange that ended has claimed nothing"


async def test_a_waiting_exchange_whose_worker_went_to_another_server_claims_nothing(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, database_url: str
) -> None:
    worker = HandWorker(api)
    await worker.hello()
    worker.seq += 1
    old = HandWorker(api)
    old.worker_id, old.seq = worker.worker_id, worker.seq - 1
    async with until_it_waits(assembly.long_polls, old.worker_id):
        waiting = asyncio.create_task(old.ask(free=5, wait_ms=LONG_POLL))
    async with another_server(database_url) as other:
        worker.api = other
        assert (await worker.exchange(recover=True)).runs == []
        await submit(api)
        # This is not an error: it is common with two servers, and the worker sends its next exchange at once.
        ended = await waiting
        expected = {"seq": old.seq, "superseded": True, "protocol": PROTOCOL.number}
        assert (ended.status_code, ended.json()) == (200, expected)
    worker.api = api
    assert len(await worker.claim()) == 1


async def test_it_ends_empty_when_its_time_is_over(api: httpx.AsyncClient, assembly: Assembly) -> None:
    worker = HandWorker(api)
    await worker.hello()
    reply = await worker.exchange(free=1, wait_ms=20)
    assert (reply.runs, reply.stop, reply.superseded) == ([], [], False)
    assert len(assembly.long_polls) == 0


async def test_outcomes_and_farewells_are_answered_without_waiting(api: httpx.AsyncClient) -> None:
    worker = HandWorker(api)
    await submit(api)
    [order] = await worker.claim()
    async with asyncio.timeout(PROMPTLY):
        for fields in ({"outcomes": [outcome(order)]}, {"recover": True}, {"draining": True}, {"stopped": True}):
            await worker.exchange(wait_ms=LONG_POLL, **fields)


async def test_the_poll_finds_what_no_hint_told_of(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, database_url: str
) -> None:
    """A job submitted to another server, in a new lane, while NOTIFY was lost; and a run whose backoff has passed."""
    worker = HandWorker(api, tasks=["noop", "other"])
    waiting = await start_waiting(assembly, worker)
    async with another_server(database_url) as other:
        job_id = await submit(other, task="other", retry={"base": "1h"})
    assert not waiting.done()
    assert await assembly.services.exchanger.poll() == 1
    [order] = (await waiting).runs
    assert order.job_id == job_id
    await worker.report(outcome(order, "FAILED"))
    waiting = await start_waiting(assembly, worker)
    assert await assembly.services.exchanger.poll() == 0
    await let_backoff_pass(connection)
    assert await assembly.services.exchanger.poll() == 1
    assert [again.run_id for again in (await waiting).runs] == [order.run_id]


async def test_a_server_that_stops_ends_every_waiting_exchange(api: httpx.AsyncClient, assembly: Assembly) -> None:
    waiting = [await start_waiting(assembly, HandWorker(api)) for _ in range(3)]
    assembly.long_polls.close()
    assert [(await task).superseded for task in waiting] == [True] * 3
