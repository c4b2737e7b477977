"""What happens besides runs is counted in `mainspring_events_total`, when it is committed."""

from __future__ import annotations

import asyncpg
import httpx
import pytest

from mainspring.kernel.metrics import REGISTRY
from mainspring.operations import event_metrics
from mainspring.roles.assembly import Assembly
from mainspring.wire.protocol import SECRET_HEADER, WORKER_HEADER
from tests.operations.backfilling import backfill_worker_of, begin, run_all
from tests.operations.firing import fire_due
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.limit_helpers import submit
from tests.operations.test_events import SECRET, a_backfilled_job, a_late_job

pytestmark = pytest.mark.anyio

NAMES = ("fire_missed", "worker_lost", "breaker_opened", "queue_paused", "queue_resumed", "backfill_ended")


def counts() -> dict[str, float]:
    return {name: REGISTRY.get_sample_value("mainspring_events_total", {"event": name}) or 0.0 for name in NAMES}


async def test_each_kind_is_counted(api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection) -> None:
    before = counts()
    await a_late_job(api, connection)  # two fires
    await fire_due(assembly, connection)
    worker = HandWorker(api)
    for _ in range(3):
        await submit(api, circuit_breaker={"failures": 2, "open_for": "1h"}, retries=0)
    for order in await worker.claim(3):
        await worker.report(outcome(order, "FAILED", error="no"))
    for verb in ("pause", "pause", "resume"):
        assert (await api.post(f"/v1/queues/letters:{verb}")).status_code == 200
    await a_backfilled_job(api, assembly)
    await begin(api, "report", concurrency=3)
    await run_all(backfill_worker_of(assembly), worker, 3)
    lost = HandWorker(api)
    lost.secret = SECRET
    await submit(api)
    await lost.claim(1)
    proof = {WORKER_HEADER: str(lost.worker_id), SECRET_HEADER: SECRET}
    notice = {"worker_id": str(lost.worker_id), "secret": SECRET}
    assert (await api.post("/v1/exchange/gone", json=notice, headers=proof)).status_code == 200
    after = counts()
    assert {name: after[name] - before[name] for name in NAMES} == {
        "fire_missed": 2, "worker_lost": 1, "breaker_opened": 1, "queue_paused": 1, "queue_resumed": 1,
        "backfill_ended": 1,
    }  # fmt: skip


async def test_what_is_undone_is_not_counted(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = counts()
    await a_late_job(api, connection)

    async def broken(self: object, *arguments: object) -> None:
        await handle(self, *arguments)  # type: ignore[arg-type]
        raise ValueError("the transaction is undone")

    handle = event_metrics.EventCounter.handle
    monkeypatch.setattr(event_metrics.EventCounter, "handle", broken)
    assert await fire_due(assembly, connection) == 0
    assert counts() == before
