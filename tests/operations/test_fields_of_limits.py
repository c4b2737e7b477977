"""For each field of a rate, a circuit breaker and a unique key: two jobs that differ only in it behave differently."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import msgspec
import pytest

from mainspring.operations.limits.admitter import Admitter
from mainspring.roles.assembly import Assembly
from mainspring.wire.limits import CircuitBreakerIn, RateLimitIn
from mainspring.wire.unique import UniqueIn
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.limit_helpers import OneAdmitter, let_pass, statuses, submit

pytestmark = pytest.mark.anyio

HOUR = 3600.0
TASKS = ("one", "other")
# By field: what the two jobs have, and whether the run of a second such job is started then.
RATES: dict[str, list[tuple[dict[str, Any], str]]] = {
    "rate": [({"rate": "1/h", "burst": 1}, "HELD"), ({"rate": "100/s", "burst": 1}, "QUEUED")],
    "burst": [({"rate": "1/h", "burst": 1}, "HELD"), ({"rate": "1/h", "burst": 2}, "QUEUED")],
    "key": [({"rate": "1/h"}, "HELD"), ({"rate": "1/h", "key": "payload.account"}, "QUEUED")],
    "per": [({"rate": "1/h", "per": "task"}, "HELD"), ({"rate": "1/h", "per": "job"}, "QUEUED")],
}
BREAKERS: dict[str, list[tuple[dict[str, Any], str]]] = {
    "failures": [({"failures": 1}, "HELD"), ({"failures": 2}, "QUEUED")],
    "open_for": [({"failures": 1, "open_for": "2h"}, "HELD"), ({"failures": 1, "open_for": "1h"}, "QUEUED")],
    "per": [({"failures": 1, "per": "task"}, "HELD"), ({"failures": 1, "per": "job"}, "QUEUED")],
}
UNIQUE: dict[str, list[tuple[dict[str, Any], str | None]]] = {
    "by": [({"by": ["task"]}, "kept"), ({"by": ["task", "payload.account"]}, None)],
    "for": [({"by": ["task"], "for": "2h"}, "kept"), ({"by": ["task"], "for": "1h"}, None)],
    "while": [({"by": ["task"]}, "kept"), ({"by": ["task"], "while": ["queued"]}, None)],
    "else": [
        ({"by": ["task"], "while": ["queued"], "else": "keep"}, "kept"),
        ({"by": ["task"], "while": ["queued"], "else": "replace"}, "replaced"),
    ],
}


@pytest.fixture
async def admitter(assembly: Assembly) -> AsyncIterator[Admitter]:
    made = OneAdmitter(assembly.store, assembly.signals)
    yield made
    await made.close()


def job(task: str, account: int, field: str, **fields: Any) -> dict[str, Any]:
    chosen = {"job_id": f"{task}-{account}"} if field == "per" else {}
    return {"task": task, "payload": {"account": account}, "retries": 0, **chosen, **fields}


@pytest.mark.parametrize(
    ("struct", "table"), [(RateLimitIn, RATES), (CircuitBreakerIn, BREAKERS), (UniqueIn, UNIQUE)], ids=lambda _: ""
)
def test_no_field_is_left_out(struct: type, table: dict[str, object]) -> None:
    assert {field.encode_name for field in msgspec.structs.fields(struct)} == set(table)


@pytest.mark.parametrize("field", RATES)
async def test_a_field_of_a_rate(api: httpx.AsyncClient, field: str) -> None:
    for task, (rate, expected) in zip(TASKS, RATES[field], strict=True):
        runs = [await _run(api, job(task, account, field, rate_limit=rate)) for account in (1, 2)]
        assert await statuses(api, *runs) == ["QUEUED", expected]


@pytest.mark.parametrize("field", BREAKERS)
async def test_a_field_of_a_circuit_breaker(
    api: httpx.AsyncClient, connection: asyncpg.Connection, admitter: Admitter, field: str
) -> None:
    for task, (breaker, _) in zip(TASKS, BREAKERS[field], strict=True):
        await submit(api, **job(task, 1, field, circuit_breaker=breaker))
        worker = HandWorker(api, tasks=[task])
        [order] = await worker.claim(1)
        await worker.report(outcome(order, "FAILED", error="no"))
    if field == "open_for":
        await let_pass(connection, HOUR)
    for task, (breaker, expected) in zip(TASKS, BREAKERS[field], strict=True):
        run = await _run(api, job(task, 2, field, circuit_breaker=breaker))
        await admitter.run_once()
        assert await statuses(api, run) == [expected]


@pytest.mark.parametrize("field", UNIQUE)
async def test_a_field_of_a_unique_key(api: httpx.AsyncClient, connection: asyncpg.Connection, field: str) -> None:
    for task, (rule, expected) in zip(TASKS, UNIQUE[field], strict=True):
        await submit(api, **job(task, 1, field, unique=rule))
        if field == "while":
            await HandWorker(api, tasks=[task]).claim(1)
        if field == "for":
            await connection.execute("update mainspring.unique_keys set until = until - interval '61 minutes'")
        answer = await api.post("/v1/jobs", json=job(task, 2, field, unique=rule))
        assert answer.status_code == (201 if expected is None else 200), answer.text
        assert answer.json().get("unique") == expected


async def _run(api: httpx.AsyncClient, body: dict[str, Any]) -> str:
    job_id = await submit(api, **body)
    found: str = (await api.get(f"/v1/jobs/{job_id}/status")).json()["latest_run"]["run_id"]
    return found
