"""The missed fires of all jobs of a tenant, page by page."""

from __future__ import annotations

import asyncpg
import httpx
import pytest

from mainspring.operations.read.jobs import JobReader
from mainspring.roles.assembly import Assembly
from tests.api.bookkeeping import problem
from tests.operations.tenants import several_tenants

pytestmark = pytest.mark.anyio

_MISSED = """insert into mainspring.missed_fires (tenant_id, job_id, generation, first_at, last_at, count, reason)
select $1, $2, 1, timestamptz '2026-01-01 00:00Z' + n * interval '1 hour',
       timestamptz '2026-01-01 00:00Z' + n * interval '1 hour', 1, $3 from generate_series(1, $4::int) n"""


async def test_all_pages_have_every_range_once_newest_first(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await api.post("/v1/jobs", json={"job_id": "a", "name": "Nightly", "task": "noop", "schedule": "@daily"})
    await connection.execute(_MISSED, 1, "a", "paused", 3)
    await connection.execute(_MISSED, 1, "gone", "late", 2)
    found, cursor = [], None
    while True:
        page = (await api.get("/v1/missed-fires", params={"limit": 2, **({"cursor": cursor} if cursor else {})})).json()
        found += page["missed"]
        if (cursor := page.get("next")) is None:
            break
    assert [(one["job_id"], one["name"]) for one in found] == [("gone", "gone")] * 2 + [("a", "Nightly")] * 3
    assert [one["first"][11:13] for one in found] == ["02", "01", "03", "02", "01"]
    assert {one["reason"] for one in found} == {"paused", "late"}
    for query, count in (({"job": "a"}, 3), ({"reason": "late"}, 2), ({"job": "a", "reason": "late"}, 0)):
        assert len((await api.get("/v1/missed-fires", params=query)).json()["missed"]) == count


async def test_a_part_of_the_name_or_the_id_finds_the_job(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await api.post("/v1/jobs", json={"job_id": "a", "name": "Nightly % sums", "task": "noop", "schedule": "@daily"})
    await connection.execute(_MISSED, 1, "a", "paused", 2)
    await connection.execute(_MISSED, 1, "Gone.once", "late", 1)
    for part, count in (("NIGHT", 2), ("% sums", 2), ("gone", 1), ("n", 3), ("nightly%", 0), ("_", 0)):
        assert len((await api.get("/v1/missed-fires", params={"q": part})).json()["missed"]) == count, part
    refused = await api.get("/v1/missed-fires", params={"q": "x" * 201})
    assert (refused.status_code, problem(refused)["field"]) == (422, "q")


async def test_a_search_for_few_of_very_many_ends_where_it_has_looked_and_goes_on_there(
    api: httpx.AsyncClient, connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JobReader, "first_stretch", 4)
    monkeypatch.setattr(JobReader, "budget", 0.0)
    await connection.execute(_MISSED, 1, "rare", "late", 3)
    await connection.execute(_MISSED, 1, "often", "paused", 10)
    for query in ({"q": "RARE"}, {"reason": "late"}):
        found, sizes, cursor = [], [], None
        while True:
            asked = {"limit": 2, **query, **({"cursor": cursor} if cursor else {})}
            page = (await api.get("/v1/missed-fires", params=asked)).json()
            sizes.append(len(page["missed"]))
            found += page["missed"]
            if (cursor := page.get("next")) is None:
                break
            assert "searched_to" in page
        assert [one["first"][11:13] for one in found] == ["03", "02", "01"], query
        assert sizes == [0, 0, 2, 1]
    assert len((await api.get("/v1/missed-fires", params={"job": "rare"})).json()["missed"]) == 3


async def test_a_range_names_the_backfills_that_cover_it(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    job = {"job_id": "a", "task": "noop", "schedule": {"cron": "0 * * * *", "start": "2025-12-01T00:00:00Z"}}
    (await api.post("/v1/jobs", json=job)).raise_for_status()
    await connection.execute(_MISSED, 1, "a", "paused", 3)
    backfill = {"from": "2026-01-01T01:30:00Z", "to": "2026-01-01T03:00:00Z"}
    made = (await api.post("/v1/jobs/a:backfill", json=backfill)).raise_for_status().json()["id"]
    gone = (await api.post("/v1/jobs/a:backfill", json=backfill)).raise_for_status().json()["id"]
    (await api.post(f"/v1/backfills/{gone}:cancel", json={})).raise_for_status()
    found = (await api.get("/v1/missed-fires")).raise_for_status().json()["missed"]
    assert [(one["first"][11:13], one["backfills"]) for one in found] == [("03", []), ("02", [made]), ("01", [])]


async def test_nothing_of_another_tenant_is_shown(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    await connection.execute(_MISSED, 1, "a", "paused", 3)
    async with several_tenants(assembly, api) as tenants:
        [other] = await tenants.add("other")
        assert (await other.get("/v1/missed-fires")).json() == {"missed": []}


@pytest.mark.parametrize("cursor", ["x", "LTE", "OTk5OTk5OTk5OTk5OTk5OTk5OTk5"])
async def test_a_wrong_cursor_is_refused(api: httpx.AsyncClient, cursor: str) -> None:
    answer = await api.get("/v1/missed-fires", params={"cursor": cursor})
    assert (answer.status_code, problem(answer)["field"]) == (422, "cursor")
