"""For tests of gates: limits, runs behind them, and what must be true of every gate at any moment."""

from __future__ import annotations

from typing import Any

import asyncpg
import httpx


async def put(api: httpx.AsyncClient, queue: str | None = "default", **limits: Any) -> dict[str, Any]:
    """Set the limits of a queue, or of the tenant."""
    answer = await api.put("/v1/tenant/limits" if queue is None else f"/v1/queues/{queue}", json=limits)
    assert answer.status_code == 200, answer.text
    view: dict[str, Any] = answer.json()
    return view


async def submit(api: httpx.AsyncClient, count: int, queue: str = "default", task: str = "noop") -> list[str]:
    jobs = [{"task": task, "queue": queue} for _ in range(count)]
    answer = await api.post("/v1/jobs:batch", json={"jobs": jobs})
    assert answer.status_code == 201, answer.text
    job_ids: list[str] = answer.json()["job_ids"]
    return job_ids


async def check_counts(connection: asyncpg.Connection) -> None:
    """What a gate counts, without its marks, is the runs that own it."""
    wrong = await connection.fetch(
        """select g.gate_id, g.in_use, m.n, r.owned
           from mainspring.gates g
           cross join lateral (select coalesce(sum(n), 0) as n from mainspring.gate_marks where gate_id = g.gate_id) m
           cross join lateral (select count(*) as owned from mainspring.runs where gates @> array[g.gate_id::bigint]) r
           where g.in_use - m.n <> r.owned"""
    )
    assert not wrong, wrong
    assert not await connection.fetchval("select count(*) from mainspring.runs where gates is not null and state <> 2")
