"""Unique jobs: submissions that the tests send, and what became of them."""

from __future__ import annotations

from typing import Any

import asyncpg
import httpx

BY = ["task", "payload.account"]
ALL = ["scheduled", "held", "queued", "running"]


def body(payload: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    rule = {name: more.pop(name) for name in ("for", "while", "else", "by") if name in more}
    return {"task": "noop", "payload": payload or {"account": 7}, "unique": {"by": BY, **rule}, **more}


async def sent(api: httpx.AsyncClient, job: dict[str, Any]) -> tuple[int, str, str | None]:
    answer = await api.post("/v1/jobs", json=job)
    assert answer.status_code in (200, 201), answer.text
    found = answer.json()
    assert answer.headers["location"] == f"/v1/jobs/{found['job_id']}"
    return answer.status_code, found["job_id"], found.get("unique")


async def created(api: httpx.AsyncClient, job: dict[str, Any]) -> str:
    status, job_id, answer = await sent(api, job)
    assert (status, answer) == (201, None)
    return job_id


async def view(api: httpx.AsyncClient, job_id: str) -> dict[str, Any]:
    found: dict[str, Any] = (await api.get(f"/v1/jobs/{job_id}")).json()
    return found


async def count(connection: asyncpg.Connection) -> int:
    """How many jobs there are that have not ended."""
    found: int = await connection.fetchval(
        "select (select count(*) from mainspring.runs) + (select count(*) from mainspring.jobs where status < 3)"
    )
    return found
