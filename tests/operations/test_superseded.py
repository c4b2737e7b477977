"""Answers `superseded` are counted by their cause."""

from __future__ import annotations

import asyncio

import asyncpg
import httpx
import pytest

from mainspring.kernel import metrics
from mainspring.roles.assembly import Assembly
from mainspring.wire.protocol import PROTOCOL
from tests.eventually import PATIENCE
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.test_long_poll import assembly as assembly
from tests.operations.test_long_poll import start_waiting, submit

pytestmark = pytest.mark.anyio


def counts() -> dict[str, float]:
    return {cause: metrics.superseded.labels(cause)._value.get() for cause in ("newer", "load", "held_rows")}


async def test_a_newer_exchange_is_told_apart_from_load_and_from_held_rows(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    before = counts()

    def since() -> dict[str, float]:
        return {cause: count - before[cause] for cause, count in counts().items() if count > before[cause]}

    worker = HandWorker(api)
    worker.card.protocol = PROTOCOL.number
    waiting = await start_waiting(assembly, worker)
    await worker.exchange()
    assert (await waiting).superseded and since() == {"newer": 1}
    for _ in range(2):
        await submit(api)
    first, second = await worker.claim(2)
    async with connection.transaction():
        await connection.execute("select from mainspring.runs where run_id = $1 for update", first.run_id)
        reply = await worker.exchange(outcomes=[outcome(first), outcome(second)])
    assert reply.superseded and reply.acked == 1 and since() == {"newer": 1, "held_rows": 1}
    async with connection.transaction():
        await connection.execute("lock table mainspring.runs in access exclusive mode")
        async with asyncio.timeout(PATIENCE):
            reply = await worker.exchange(outcomes=[outcome(first), outcome(second)])
    assert reply.retry_in and since() == {"newer": 1, "held_rows": 1, "load": 1}
