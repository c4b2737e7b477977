"""What happens is an event in the transaction that causes it, exactly once. A handler that fails undoes both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.domain.backfills import BackfillState
from mainspring.operations.lifecycle import dispatch
from mainspring.operations.lifecycle.dispatch import EventKind
from mainspring.operations.lifecycle.effects import Effects
from mainspring.roles.assembly import Assembly
from mainspring.wire.protocol import SECRET_HEADER, WORKER_HEADER
from tests.operations.backfilling import backfill_worker_of, begin, run_all, verb
from tests.operations.firing import fire_due
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.limit_helpers import submit

pytestmark = pytest.mark.anyio

SECRET = "5e" * 32


class Recorder:
    """Wants everything, and writes to the database what it is told."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.broken = False

    def wants(self, _: Any, /) -> bool:
        return True

    async def handle(self, connection: asyncpg.Connection, events: Sequence[Any], _: Effects, /) -> None:
        assert connection.is_in_transaction()
        if self.broken:
            raise ValueError("the handler is broken")
        self.events += events


def recorded(monkeypatch: pytest.MonkeyPatch, kind: EventKind[Any]) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(kind, "_listed", (recorder,))
    return recorder


async def a_late_job(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    """Two of its fires are due, and its policy skips what is late."""
    body = {"job_id": "late", "task": "noop", "schedule": {"cron": "@hourly"}, "misfire": {"policy": "skip"}}
    answer = await api.post("/v1/jobs", json=body)
    assert answer.status_code == 201, answer.text
    await connection.execute("update mainspring.jobs set next_fire_at = next_fire_at - interval '2 hours'")


async def missed_ranges(connection: asyncpg.Connection) -> int:
    found: int = await connection.fetchval("select count(*) from mainspring.missed_fires")
    return found


async def test_a_fire_was_missed(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = recorded(monkeypatch, dispatch.FIRES_MISSED)
    await a_late_job(api, connection)
    recorder.broken = True
    assert await fire_due(assembly, connection) == 0
    assert await missed_ranges(connection) == 0, "the job is set aside, and nothing of its fire is stored"
    recorder.broken = False
    assert assembly.node is not None
    assembly.node.firer._aside.clear()
    await fire_due(assembly, connection)
    assert [(one.job_id, one.count, one.reason) for one in recorder.events] == [
        ("late", 2, "late: misfire policy skip")
    ]
    assert await missed_ranges(connection) == 1


async def test_what_a_pause_misses_is_an_event_too(
    api: httpx.AsyncClient, connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = recorded(monkeypatch, dispatch.FIRES_MISSED)
    await a_late_job(api, connection)
    assert (await api.post("/v1/jobs/late:pause")).status_code == 200
    assert [(one.job_id, one.count) for one in recorder.events] == [("late", 2)]


async def test_a_worker_was_lost(api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = recorded(monkeypatch, dispatch.WORKERS_LOST)
    worker = HandWorker(api)
    worker.secret = SECRET
    await submit(api)
    await worker.claim(1)
    for _ in range(2):
        notice = {"worker_id": str(worker.worker_id), "secret": SECRET}
        proof = {WORKER_HEADER: str(worker.worker_id), SECRET_HEADER: SECRET}
        assert (await api.post("/v1/exchange/gone", json=notice, headers=proof)).status_code == 200
    assert [(one.worker_id, one.silent_for) for one in recorder.events] == [(worker.worker_id, None)]


async def test_a_breaker_opened(api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = recorded(monkeypatch, dispatch.BREAKERS_OPENED)
    worker = HandWorker(api)
    for _ in range(3):
        await submit(api, circuit_breaker={"failures": 2, "open_for": "1h"}, retries=0)
    orders = await worker.claim(3)
    for order in orders:
        await worker.report(outcome(order, "FAILED", error="no"))
    assert len(recorder.events) == 1


async def test_a_queue_was_paused(api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = recorded(monkeypatch, dispatch.QUEUES_PAUSED)
    for verb_ in ("pause", "pause", "resume"):
        assert (await api.post(f"/v1/queues/letters:{verb_}")).status_code == 200
    assert [(one.queue, one.paused) for one in recorder.events] == [("letters", True), ("letters", False)]


async def a_backfilled_job(api: httpx.AsyncClient, assembly: Assembly) -> None:
    assembly.signals.backfills._listeners.clear()  # the test says when a backfill continues
    answer = await api.post("/v1/jobs", json={"job_id": "report", "task": "noop", "schedule": {"cron": "@hourly"}})
    assert answer.status_code == 201, answer.text


async def test_a_backfill_has_ended_when_its_last_run_has(
    api: httpx.AsyncClient, assembly: Assembly, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = recorded(monkeypatch, dispatch.BACKFILLS_ENDED)
    await a_backfilled_job(api, assembly)
    view = await begin(api, "report", concurrency=3)
    await run_all(backfill_worker_of(assembly), HandWorker(api), 3)
    assert [(str(one.backfill_id), one.state) for one in recorder.events] == [(view["id"], BackfillState.COMPLETED)]


@pytest.mark.parametrize("how", ["cancel", "delete"])
async def test_a_backfill_that_is_cancelled_has_ended(
    api: httpx.AsyncClient, assembly: Assembly, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    recorder = recorded(monkeypatch, dispatch.BACKFILLS_ENDED)
    await a_backfilled_job(api, assembly)
    view = await begin(api, "report")
    if how == "cancel":
        await verb(api, view, "cancel")
        await verb(api, view, "cancel")
    else:
        assert (await api.delete("/v1/jobs/report")).status_code in (200, 204)
    await backfill_worker_of(assembly).run_once()
    assert [(str(one.backfill_id), one.state) for one in recorder.events] == [(view["id"], BackfillState.CANCELLED)]
