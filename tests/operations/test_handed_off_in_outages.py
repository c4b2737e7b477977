"""A run that is handed off while PostgreSQL goes away: its submission is answered once, and it is run once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.operations.exchange import hand_off
from mainspring.operations.submit.submitter import Submitter
from mainspring.roles.assembly import Assembly
from tests.operations.hand_worker import HandWorker, held, outcome
from tests.operations.test_hand_off import handed_off, waiting_worker
from tests.operations.test_long_poll import assembly as assembly
from tests.operations.test_long_poll import until_it_waits
from tests.operations.test_submissions_in_outages import front as front
from tests.operations.test_submissions_in_outages import lose_once, post
from tests.store.rows import ended, live

pytestmark = pytest.mark.anyio

BODIES: dict[str, Any] = {
    "one": {"task": "noop", "payload": {"n": 1}},
    "several": {"jobs": [{"task": "noop", "payload": {"n": number}} for number in range(3)]},
}


@pytest.fixture
async def asking(
    api: httpx.AsyncClient, assembly: Assembly
) -> AsyncIterator[tuple[HandWorker, asyncio.Task[httpx.Response]]]:
    """A worker whose exchange waits."""
    worker, waiting = await waiting_worker(api, assembly)
    waiting.cancel()
    async with until_it_waits(assembly.long_polls, worker.worker_id):
        asked = asyncio.create_task(worker.ask(free=5, wait_ms=100_000))
    yield worker, asked
    asked.cancel()


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("lost", ["statement", "commit", "before"])
async def test_a_commit_in_doubt_is_answered_once_and_run_once(
    assembly: Assembly, front: httpx.AsyncClient, connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch,
    asking: tuple[HandWorker, asyncio.Task[httpx.Response]], body: Any, lost: str,
) -> None:  # fmt: skip
    worker, asked = asking
    before = handed_off()
    if lost == "commit":
        lose_once(monkeypatch, Submitter, "_store_all", after=True)
    else:
        lose_once(monkeypatch, hand_off, "hand_off_runs", after=lost == "statement")
    answer = await post(front, body)
    assert answer.status_code == 201, answer.text
    ids = answer.json().get("job_ids") or [answer.json()["job_id"]]
    assert sorted(str(row["run_id"]) for row in await live(connection)) == sorted(ids)
    reply = await asked
    if lost == "commit":  # the exchange was told before the connection was lost
        assert reply.status_code == 200 and handed_off() - before == len(ids)
    else:
        assert reply.status_code == 503, "an empty answer would say that nothing was assigned"
    orders = (await worker.exchange(recover=True, free=5)).runs
    assert sorted(str(order.run_id) for order in orders) == sorted(ids)
    assert (await worker.exchange(recover=True, inventory=held(*orders), free=5)).runs == []
    await worker.report(*map(outcome, orders))
    assert await live(connection) == []
    rows = [row for row in await ended(connection) if str(row["run_id"]) in ids]
    assert [(row["attempt"], row["fence"]) for row in rows] == [(1, 1)] * len(ids)


async def test_a_run_that_has_ended_before_it_is_looked_for_is_not_stored_again(
    assembly: Assembly, front: httpx.AsyncClient, connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch,
    asking: tuple[HandWorker, asyncio.Task[httpx.Response]],
) -> None:  # fmt: skip
    worker, asked = asking
    lose_once(monkeypatch, hand_off, "hand_off_runs", after=True)
    waits = type(assembly.store.waiting).wait

    async def until_it_has_ended(*args: Any) -> bool:
        assert (await asked).status_code == 503
        [order] = (await worker.exchange(recover=True)).runs
        await worker.report(outcome(order))
        return await waits(*args)

    monkeypatch.setattr(type(assembly.store.waiting), "wait", until_it_has_ended)
    answer = await post(front, BODIES["one"])
    assert answer.status_code == 201 and await live(connection) == []
    assert [str(row["run_id"]) for row in await ended(connection)].count(answer.json()["job_id"]) == 1
