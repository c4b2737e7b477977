"""Which backfills are refused, and how they are listed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import httpx
import pytest

from tests.api.bookkeeping import problem, rows
from tests.operations.backfilling import FROM, TO, begin
from tests.operations.test_kept_payloads import make

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("body", "field", "code", "words"),
    [
        ({"from": TO, "to": FROM}, "to", "invalid_range", "begins at"),
        ({"from": FROM, "to": FROM}, "to", "invalid_range", "begins at"),
        ({"from": FROM, "to": "2100-01-01T00:00:00Z"}, "to", "invalid_range", "in the future"),
        ({"from": "1899-12-31T00:00:00Z", "to": TO}, "from", "invalid_time", "1899"),
        ({"from": "2025-03-01", "to": TO}, "from", "missing_timezone", "time zone"),
        ({"from": "yesterday", "to": TO}, "from", "invalid_time", "not a time"),
        ({"from": FROM}, "to", "invalid_input", "to"),
        ({"from": FROM, "to": TO, "concurrency": 0}, "concurrency", "invalid_input", "0"),
        ({"from": FROM, "to": TO, "concurrency": 1001}, "concurrency", "invalid_input", "1001"),
        ({"from": FROM, "to": TO, "concurrency": "4"}, "concurrency", "invalid_input", "got a text"),
        ({"from": FROM, "to": TO, "order": "random"}, "order", "invalid_input", "random"),
        ({"from": FROM, "to": TO, "payload": {}}, "payload", "unknown_field", "payload"),
        ({"from": FROM, "to": "2025-03-01T00:59:00Z", "job": "q"}, "job", "unknown_field", "job"),
        ({"from": "2025-03-01T00:01:00Z", "to": "2025-03-01T00:59:00Z"}, "from", "no_fires", "no fire"),
    ],
)  # fmt: skip
async def test_a_range_that_is_not_right_is_refused_and_nothing_is_stored(
    api: httpx.AsyncClient, connection: asyncpg.Connection, body: Any, field: str, code: str, words: str
) -> None:
    job_id = await make(api, schedule="@hourly")
    before = await rows(connection)
    refused = problem(await api.post(f"/v1/jobs/{job_id}:backfill", json=body))
    assert (refused["status"], refused["field"], refused["code"]) == (422, field, code)
    assert words in refused["detail"]
    assert await rows(connection) == before


async def test_more_than_a_million_fires_are_refused_with_their_number(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    job_id = await make(api, schedule="* * * * * *")
    start = datetime(2025, 3, 1, tzinfo=UTC)
    path = f"/v1/jobs/{job_id}:backfill"
    for seconds, number in ((1_000_001, "1,000,001"), (30_000_000, "30,000,000")):
        body = {"from": start.isoformat(), "to": (start + timedelta(seconds=seconds)).isoformat()}
        refused = problem(await api.post(path, json=body))
        assert (refused["status"], refused["code"]) == (422, "too_many_fires")
        assert number in refused["detail"] and "1,000,000" in refused["expected"]
    body = {"from": start.isoformat(), "to": (start + timedelta(seconds=1_000_000)).isoformat()}
    assert (await api.post(path, json=body)).json()["total"] == 1_000_000


async def test_only_jobs_that_recur_can_be_backfilled(api: httpx.AsyncClient) -> None:
    body = {"from": FROM, "to": TO}
    for schedule in ("manual", {"at": "2100-01-01T00:00:00Z"}, "now"):
        job_id = await make(api, schedule=schedule)
        refused = problem(await api.post(f"/v1/jobs/{job_id}:backfill", json=body))
        assert (refused["status"], refused["code"]) == (422, "not_recurring")
    assert problem(await api.post("/v1/jobs/no-such-job:backfill", json=body))["status"] == 404
    for path in ("no-such", "0197a6c0-7c30-7e55-9f72-a1bb23cd45ef"):
        assert problem(await api.get(f"/v1/backfills/{path}"))["status"] == 404


async def test_backfills_are_listed_page_by_page(api: httpx.AsyncClient) -> None:
    one, other = await make(api, schedule="@hourly"), await make(api, schedule="@hourly")
    views = [await begin(api, job_id) for job_id in (one, other, one)]
    page = (await api.get("/v1/backfills", params={"limit": 2})).json()
    rest = (await api.get("/v1/backfills", params={"limit": 2, "cursor": page["next"]})).json()
    assert [view["id"] for view in page["backfills"] + rest["backfills"]] == [view["id"] for view in reversed(views)]
    assert rest["next"] is None
    of_one = (await api.get("/v1/backfills", params={"job": one})).json()["backfills"]
    assert [view["id"] for view in of_one] == [views[2]["id"], views[0]["id"]]
    assert (await api.get("/v1/backfills?state=Completed")).json()["backfills"] == []
    refused = problem(await api.get("/v1/backfills?state=over"))
    assert (refused["status"], refused["field"]) == (422, "state")
