"""Backfills as the tests create them, control them and run them."""

from __future__ import annotations

from typing import Any

import asyncpg
import httpx

from mainspring.operations.backfills.backfill_worker import BackfillWorker
from mainspring.roles.assembly import Assembly
from tests.operations.hand_worker import HandWorker, outcome

FROM, TO = "2025-03-01T00:00:00Z", "2025-03-01T10:00:00Z"  # ten fires of @hourly
View = dict[str, Any]


def backfill_worker_of(assembly: Assembly) -> BackfillWorker:
    return next(task for task in assembly.periodic_tasks if isinstance(task, BackfillWorker))


async def begin(api: httpx.AsyncClient, job_id: str, start: str = FROM, end: str = TO, **fields: Any) -> View:
    answer = await api.post(f"/v1/jobs/{job_id}:backfill", json={"from": start, "to": end, **fields})
    assert answer.status_code == 201, answer.text
    view: View = answer.json()
    assert answer.headers["Location"] == f"/v1/backfills/{view['id']}"
    return view


async def read(api: httpx.AsyncClient, view: View) -> View:
    found: View = (await api.get(f"/v1/backfills/{view['id']}")).json()
    return found


async def verb(api: httpx.AsyncClient, view: View, name: str, **body: Any) -> View:
    answer = await api.post(f"/v1/backfills/{view['id']}:{name}", json=body)
    assert answer.status_code == 200, answer.text
    found: View = answer.json()
    return found


async def hours(connection: asyncpg.Connection, job_id: str) -> list[int]:
    """The hours of the day for which the job has runs, in the order in which these were created."""
    found = await connection.fetch(
        "select scheduled_for, run_id from mainspring.runs where job_id = $1 union all"
        " select scheduled_for, run_id from mainspring.run_history where job_id = $1 order by run_id",
        job_id,
    )
    return [row["scheduled_for"].hour for row in found]


async def run_all(
    backfill_worker: BackfillWorker, worker: HandWorker, at_once: int = 1, status: str = "SUCCESS"
) -> int:
    """Run what backfills create until they create nothing. Return how many ran."""
    ran = 0
    while True:
        await backfill_worker.run_once()
        reply = await worker.exchange(free=100, hello=None if worker.seq else worker.card)
        if not reply.runs:
            return ran
        assert len(reply.runs) <= at_once
        ran += len(reply.runs)
        await worker.report(*(outcome(order, status) for order in reply.runs))
