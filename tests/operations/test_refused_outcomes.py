"""An exchange with an outcome that cannot be stored is refused as a whole, and changes nothing."""

from __future__ import annotations

from typing import Any

import asyncpg
import httpx
import msgspec
import pytest

from mainspring.wire.exchange import Outcome, Progress, RunOrder
from tests.api.bookkeeping import problem
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio


async def standing(connection: asyncpg.Connection) -> list[list[Any]]:
    """Everything that an exchange may change, except the heartbeat."""
    return [
        [dict(row) for row in await connection.fetch(f"select * from mainspring.{table} order by 1")]
        for table in ("runs", "workers", "run_history", "attempts", "dead_letters")
    ]


def a_bad_one(order: RunOrder, what: dict[str, Any]) -> Outcome:
    return Outcome(order.run_id, order.fence, **what)


@pytest.mark.parametrize(
    ("what", "status", "code", "field"),
    [
        ({"status": "DONE"}, 422, "invalid_input", "outcomes[2].status"),
        ({"error": 7}, 422, "invalid_input", "outcomes[2].error"),
        ({"result": msgspec.Raw(b'"\xff"')}, 422, "invalid_input", "outcomes[2].result"),
        ({"result": msgspec.Raw(b'{"a":')}, 400, "invalid_json", "$"),
        ({"result": msgspec.Raw(b"[" * 30_000 + b"]" * 30_000)}, 400, "invalid_json", "$"),
        ({"ran_ms": 1e300}, 422, "invalid_input", "outcomes[2].ran_ms"),
        ({"held_ms": 1e30}, 422, "invalid_input", "outcomes[2].held_ms"),
        ({"status": "FAILED", "retry": False, "ran_ms": 1e300}, 422, "invalid_input", "outcomes[2].ran_ms"),
        ({"status": "FAILED", "held_ms": 1e300}, 422, "invalid_input", "outcomes[2].held_ms"),
        ({"status": "FAILED", "held_ms": -1e18}, 422, "invalid_input", "outcomes[2].held_ms"),
    ],
    ids=["status", "error", "not UTF-8", "not JSON", "too deep", "ran_ms", "held_ms", "a failure", "late", "early"],
)
async def test_a_refused_exchange_changes_nothing_and_its_parts_are_taken_afterwards(
    api: httpx.AsyncClient,
    connection: asyncpg.Connection,
    what: dict[str, Any],
    status: int,
    code: str,
    field: str | None,
) -> None:
    worker = HandWorker(api)
    await api.post("/v1/jobs:batch", json=[{"task": "noop"}] * 5)
    orders = await worker.claim(4)
    good = [outcome(orders[0]), outcome(orders[1], "FAILED"), outcome(orders[3], "RETURNED")]
    before = await standing(connection)
    answer = await worker.ask(outcomes=[*good[:2], a_bad_one(orders[2], what), good[2]], free=5)
    found = problem(answer)
    assert (found["status"], found["code"], found.get("field")) == (status, code, field)
    assert await standing(connection) == before
    await worker.report(*good)
    reply = await worker.report(outcome(orders[2], "FAILED", retry=False))
    assert not reply.fenced
    assert await connection.fetchval("select count(*) from mainspring.run_history") == 2


async def test_a_refused_word_of_progress_takes_nothing_along(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    worker = HandWorker(api)
    await api.post("/v1/jobs:batch", json=[{"task": "noop"}] * 2)
    told, done = await worker.claim(2)
    before = await standing(connection)
    words = [Progress(told.run_id, told.fence, 1, 7.0)]
    found = problem(await worker.ask(outcomes=[outcome(done)], progress=words))
    assert (found["status"], found["field"]) == (422, "progress[0].fraction")
    assert await standing(connection) == before
