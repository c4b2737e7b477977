"""What tests of rates and circuit breakers share: submissions, and time that passes at once."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import httpx

from mainspring.operations.lifecycle.rescue import rescue
from mainspring.operations.limits.admitter import Admitter
from mainspring.roles.assembly import Assembly
from mainspring.store import runs
from tests.operations.hand_worker import HandWorker


class OneAdmitter(Admitter):
    """Its round begins after what has woken it has ended. Otherwise each may pass over rows that the other has locked,
    and a test would look before both have ended."""

    async def run_once(self) -> int:
        while self._waking is not None and not self._waking.done():
            await asyncio.wait([self._waking])
        return await super().run_once()


async def submit(api: httpx.AsyncClient, **fields: Any) -> str:
    answer = await api.post("/v1/jobs", json={"task": "noop", **fields})
    assert answer.status_code == 201, answer.text
    job_id: str = answer.json()["job_id"]
    return job_id


async def statuses(api: httpx.AsyncClient, *run_ids: str) -> list[str]:
    return [(await api.get(f"/v1/runs/{run_id}")).json()["status"] for run_id in run_ids]


async def let_pass(connection: asyncpg.Connection, seconds: float) -> None:
    """Everything that is stored is older by so much."""
    await connection.execute(
        """update mainspring.limit_keys set tat = tat - $1 * interval '1 second',
           next_at = next_at - $1 * interval '1 second', opened_at = opened_at - $1 * interval '1 second'""",
        seconds,
    )
    await connection.execute(
        """update mainspring.runs set ready_at = ready_at - $1 * interval '1 second',
           wake_at = wake_at - $1 * interval '1 second', held_rank = held_rank - $1 * interval '1 second'""",
        seconds,
    )


async def check_counts(connection: asyncpg.Connection) -> None:
    """in_use counts the rows that own a slot."""
    rows = await connection.fetch(
        """select k.key_id, k.in_use, (select count(*) from mainspring.runs r
                                       where k.key_id = any (r.limit_keys) and r.state in (1, 2)) as rows
           from mainspring.limit_keys k"""
    )
    for row in rows:
        assert row["in_use"] == row["rows"], tuple(row)


async def lose(assembly: Assembly, worker: HandWorker) -> None:
    """Its worker is lost with its runs."""
    async with assembly.store.hot.acquire() as connection, connection.transaction():
        effects = await rescue(connection, await runs.held_by(connection, worker.worker_id, 100), lambda: 0.5)
    effects.publish(assembly.signals)
