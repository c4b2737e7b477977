"""Helpers for refused requests: row counts of all tables, and checks of the problem document."""

from __future__ import annotations

from typing import Any

import asyncpg
import httpx

TABLES = (
    "jobs", "runs", "run_history", "attempts", "dead_letters", "missed_fires", "idempotency_keys", "taken_ids", "lanes",
    "unique_keys", "workers",
)  # fmt: skip
_COUNTS = "select " + ", ".join(f"(select count(*) from mainspring.{table}) as {table}" for table in TABLES)


async def rows(connection: asyncpg.Connection) -> dict[str, int]:
    """The number of rows of each table."""
    return dict(await connection.fetchrow(_COUNTS))


def problem(answer: httpx.Response) -> dict[str, Any]:
    """The problem document of a refused request."""
    assert answer.status_code >= 400, answer.text
    assert answer.headers["content-type"] == "application/problem+json", answer.headers
    document: dict[str, Any] = answer.json()
    assert document["status"] == answer.status_code
    assert document["type"] == f"urn:mainspring:problem:{document['code']}"
    assert document["title"] and document["detail"]
    assert len(answer.content) < 4096, "a refusal does not send the input back"
    return document
