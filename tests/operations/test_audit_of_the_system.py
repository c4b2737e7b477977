"""What the system decides by itself is in the audit, too: breakers that open, and workers that are declared lost."""

from __future__ import annotations

from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.roles.assembly import Assembly
from mainspring.wire.protocol import SECRET_HEADER, WORKER_HEADER
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.limit_helpers import OneAdmitter, submit
from tests.operations.test_events import SECRET

pytestmark = pytest.mark.anyio


async def entries(api: httpx.AsyncClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await api.get("/v1/audit")).json()["entries"]
    return found


async def test_a_breaker_that_opens_has_an_entry(api: httpx.AsyncClient, assembly: Assembly) -> None:
    admitter = OneAdmitter(assembly.store, assembly.signals)
    await submit(api, circuit_breaker={"failures": 1, "open_for": "1h"}, retries=0)
    worker = HandWorker(api)
    [order] = await worker.claim(1)
    await worker.report(outcome(order, "FAILED", error="no"))
    await admitter.run_once()
    await admitter.close()
    [breaker] = (await api.get("/v1/breakers")).json()["breakers"]
    [entry] = await entries(api)
    assert (entry["by"], entry["source"], entry["operation"]) == ("mainspring", "system", "breakers.open")
    assert (entry["kind"], entry["id"]) == ("breaker", str(breaker["breaker_id"]))
    assert (entry["before"], entry["after"]["state"]) == ({"state": "closed"}, "open")


async def test_a_worker_that_is_declared_lost_has_an_entry_and_its_runs_have_none(api: httpx.AsyncClient) -> None:
    await submit(api)
    worker = HandWorker(api)
    worker.secret = SECRET
    await worker.claim(1)
    proof = {WORKER_HEADER: str(worker.worker_id), SECRET_HEADER: SECRET}
    notice = {"worker_id": str(worker.worker_id), "secret": SECRET}
    assert (await api.post("/v1/exchange/gone", json=notice, headers=proof)).status_code == 200
    [entry] = await entries(api)
    assert (entry["by"], entry["operation"], entry["id"]) == ("mainspring", "workers.lost", str(worker.worker_id))
    assert (entry["after"]["name"], entry["after"]["state"]) == ("by-hand", "LOST")


async def test_submissions_fires_claims_and_ends_write_nothing(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await submit(api)
    worker = HandWorker(api)
    [order] = await worker.claim(1)
    await worker.report(outcome(order))
    assert await connection.fetchval("select count(*) from mainspring.audit_entries") == 0
