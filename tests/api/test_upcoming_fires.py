"""FEATURES 2.10: GET /v1/insights/upcoming lists the next fires of all jobs, in order of time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from mainspring.operations.read.upcoming import UpcomingReader
from mainspring.roles.assembly import Assembly
from tests.operations.tenants import several_tenants

pytestmark = pytest.mark.anyio

URL = "/v1/insights/upcoming"
DAY = datetime(2030, 1, 1, tzinfo=UTC)


def at(hours: float) -> str:
    return f"{DAY + timedelta(hours=hours):%Y-%m-%dT%H:%M:%SZ}"


async def listed(api: httpx.AsyncClient, query: str) -> dict[str, Any]:
    answer = await api.get(f"{URL}?{query}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def submit(api: httpx.AsyncClient, **schedules: Any) -> None:
    jobs = [{"task": "noop", "job_id": job_id, "schedule": when} for job_id, when in schedules.items()]
    answer = await api.post("/v1/jobs:batch", json=jobs)
    assert answer.status_code == 201, answer.text


def fires(page: dict[str, Any]) -> list[tuple[str, str]]:
    return [(fire["job_id"], fire["at"]) for fire in page["fires"]]


async def test_a_job_occurs_as_often_as_it_fires(api: httpx.AsyncClient) -> None:
    await submit(api, six="0 */6 * * *", noon="0 12 * * *", once={"at": at(7)}, never="manual", later={"at": at(99)})
    page = await listed(api, f"from={at(0)}&to={at(24)}")
    assert fires(page) == [
        ("six", at(0)), ("six", at(6)), ("once", at(7)), ("noon", at(12)), ("six", at(12)), ("six", at(18)),
    ]  # fmt: skip
    assert (page["from"], page["until"], page["more"], page["next"]) == (at(0), at(24), False, None)
    assert page["fires"][3] == {
        "at": at(12), "job_id": "noon", "name": "noon", "schedule": "0 12 * * * (UTC)", "queue": "default",
    }  # fmt: skip


async def test_pages_continue_where_the_last_one_ended(api: httpx.AsyncClient) -> None:
    await submit(api, **{f"j{number}": "0 */6 * * *" for number in range(7)})
    whole = fires(await listed(api, f"from={at(0)}&to={at(24)}"))
    assert len(whole) == 28
    pages, url = [], f"{URL}?from={at(0)}&to={at(24)}&limit=5"
    while url:
        answer = await api.get(url)
        pages.append(fires(answer.json()))
        url = answer.links["next"]["url"] if "next" in answer.links else ""
    assert [fire for page in pages for fire in page] == whole
    assert [len(page) for page in pages] == [5, 5, 5, 5, 5, 3]


async def test_paused_jobs_and_jobs_of_others_are_left_out(assembly: Assembly, api: httpx.AsyncClient) -> None:
    await submit(api, paused="0 12 * * *", here="0 13 * * *")
    await api.post("/v1/jobs/paused:pause")
    assert fires(await listed(api, f"from={at(0)}&to={at(24)}")) == [("here", at(13))]
    async with several_tenants(assembly, api) as tenants:
        (other,) = await tenants.add("other")
        assert (await listed(other, f"from={at(0)}&to={at(24)}"))["fires"] == []


async def test_with_very_many_jobs_the_list_ends_where_it_would_not_be_complete(
    assembly: Assembly, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monthly = {f"j{number}": f"{number % 60} {number // 60} 1 1 *" for number in range(300)}
    await submit(api, **monthly)
    whole = fires(await listed(api, "limit=1000"))
    reader: UpcomingReader = assembly.services.upcoming_reader
    monkeypatch.setattr(reader, "_many", 100)
    assert fires(await listed(api, "limit=1000")) == whole  # no shard has so many
    monkeypatch.setattr(reader, "of_a_shard", 3)
    page = await listed(api, "limit=1000")
    assert 0 < len(page["fires"]) < len(whole) and (page["more"], page["next"]) == (True, None)
    complete = [fire for fire in whole if fire[1] < page["until"]]
    assert fires(page)[: len(complete)] == complete
    answer = await api.get(f"{URL}?from=2100-01-01T00:00:00Z")
    assert (answer.status_code, answer.json()["field"]) == (422, "from")


async def test_bad_parameters_are_named(api: httpx.AsyncClient) -> None:
    for query, field in (
        ("from=x", "from"), ("to=x", "to"), (f"from={at(2)}&to={at(1)}", "to"), ("limit=0", "limit"),
        ("limit=1001", "limit"), ("cursor=x", "cursor"), ("n=3", "n"), ("to=2020-01-01T00:00:00Z", "to"),
        ("from=9998-12-31T00:00:00Z", None),
    ):  # fmt: skip
        answer = await api.get(f"{URL}?{query}")
        assert (answer.status_code, answer.json().get("field")) == (200 if field is None else 422, field), answer.text


async def test_no_more_fires_than_runs_are_left(api: httpx.AsyncClient) -> None:
    hourly = {"rrule": "FREQ=HOURLY;BYMINUTE=0", "start": at(0), "max_runs": 3}
    await submit(api, three=hourly, one={**hourly, "max_runs": 1})
    page = await listed(api, f"from={at(0)}&to={at(24)}")
    assert fires(page) == [("one", at(0)), ("three", at(0)), ("three", at(1)), ("three", at(2))]
    assert fires(await listed(api, f"from={at(1.5)}&to={at(24)}")) == [("three", at(2))]
    page = await listed(api, f"from={at(0)}&to={at(24)}&limit=3")
    answer = await api.get(f"{URL}?from={at(0)}&to={at(24)}&limit=3&cursor={page['next']}")
    assert fires(answer.json()) == [("three", at(2))]
