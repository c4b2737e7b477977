"""FEATURES 2.1 over HTTP: `H`, what a job does when clocks are moved, and schedules in words."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import httpx
import pytest

from tests.api.bookkeeping import problem

pytestmark = pytest.mark.anyio
BERLIN = ZoneInfo("Europe/Berlin")


async def make(api: httpx.AsyncClient, job_id: str, **fields: Any) -> dict[str, Any]:
    answer = await api.post("/v1/jobs", json={"task": "noop", "job_id": job_id, **fields})
    assert answer.status_code == 201, answer.text
    job: dict[str, Any] = (await api.get(f"/v1/jobs/{job_id}")).json()
    return job


async def upcoming(api: httpx.AsyncClient, job_id: str, count: int = 1000) -> list[datetime]:
    answer = (await api.get(f"/v1/jobs/{job_id}/upcoming?n={count}")).json()
    return [datetime.fromisoformat(text) for text in answer["fires"]]


async def test_a_job_says_in_words_when_it_runs(api: httpx.AsyncClient) -> None:
    job = await make(api, "report", schedule={"cron": "0 9 * * MON-FRI", "timezone": "Europe/Berlin"})
    assert job["schedule_in_words"] == "At 09:00, Monday to Friday, Europe/Berlin"
    assert (await make(api, "now"))["schedule_in_words"] == "Once, as soon as possible"


async def test_h_is_shown_as_written_and_by_its_value(api: httpx.AsyncClient) -> None:
    job, other = await make(api, "one", schedule="H H * * *"), await make(api, "two", schedule="H H * * *")
    assert job["cron_expression"] == other["cron_expression"] == "H H * * *"
    assert job["next_fire_at"] != other["next_fire_at"]
    [fire] = await upcoming(api, "one", 1)
    assert job["schedule"] == f"H H * * * = {fire.minute} {fire.hour} * * * (UTC)"
    assert job["schedule_in_words"] == f"At {fire:%H:%M}, every day, UTC"
    patched = (await api.patch("/v1/jobs/one", json={"priority": "high"})).json()
    moved = (await api.patch("/v1/jobs/one", json={"timezone": "Europe/Berlin"})).json()
    assert patched["schedule"] == job["schedule"]
    assert moved["schedule"] == job["schedule"].replace("UTC", "Europe/Berlin")


async def test_jobs_that_differ_in_dst_fire_at_other_times(api: httpx.AsyncClient) -> None:
    fires: dict[str, set[datetime]] = {}
    for name, dst in {
        "plain": None, "skip": {"gap": "skip"}, "last": {"overlap": "last"}, "both": {"overlap": "BOTH"},
    }.items():  # fmt: skip
        schedule = {"cron": "30 2 * * *", "timezone": "Europe/Berlin"} | ({} if dst is None else {"dst": dst})
        job = await make(api, name, schedule=schedule)
        assert job["dst"] == (dst and {key: word.lower() for key, word in dst.items()})
        fires[name] = set(await upcoming(api, name))
    walls = {name: [moment.astimezone(BERLIN) for moment in moments] for name, moments in fires.items()}
    assert {wall.hour for wall in walls["plain"]} == {2, 3} and {wall.hour for wall in walls["skip"]} == {2}
    assert {wall.fold for wall in walls["plain"]} == {0} and {wall.fold for wall in walls["last"]} == {0, 1}
    assert {*fires["plain"]} - {*fires["last"]} < {*fires["both"]} and {*fires["last"]} - {*fires["plain"]}


async def test_a_patch_of_the_line_or_the_zone_keeps_dst(api: httpx.AsyncClient) -> None:
    await make(api, "a", schedule={"cron": "30 2 * * *", "timezone": "Europe/Berlin", "dst": {"gap": "skip"}})
    line = (await api.patch("/v1/jobs/a", json={"cron": "15 2 * * *"})).json()
    assert (line["cron_expression"], line["timezone"], line["dst"]) == ("15 2 * * *", "Europe/Berlin", {"gap": "skip"})
    zone = (await api.patch("/v1/jobs/a", json={"timezone": "America/New_York"})).json()
    assert (zone["timezone"], zone["dst"]) == ("America/New_York", {"gap": "skip"})
    utc = (await api.patch("/v1/jobs/a", json={"timezone": "UTC"})).json()
    assert (utc["cron_expression"], utc["dst"]) == ("15 2 * * *", None)
    whole = {"cron": "30 2 * * *", "timezone": "Europe/Berlin", "dst": {"overlap": "both"}}
    assert (await api.patch("/v1/jobs/a", json={"schedule": whole})).json()["dst"] == {"overlap": "both"}
    whole.pop("dst")
    assert (await api.patch("/v1/jobs/a", json={"schedule": whole})).json()["dst"] is None


async def test_a_patch_that_never_fires_with_the_kept_dst_is_refused(api: httpx.AsyncClient) -> None:
    before = await make(api, "a", schedule={"cron": "@daily", "timezone": "Europe/Berlin", "dst": {"gap": "skip"}})
    answer = await api.patch("/v1/jobs/a", json={"cron": "30 2 25-31 3 */7"})
    assert (answer.status_code, problem(answer)["code"], problem(answer)["field"]) == (422, "cron_never_fires", "cron")
    assert (await api.get("/v1/jobs/a")).json() == before


@pytest.mark.parametrize(
    ("schedule", "code", "field"),
    [
        ({"cron": "H(5-2) * * * *"}, "invalid_cron", "schedule.cron"),
        ({"cron": "H(0-99) * * * *"}, "invalid_cron", "schedule.cron"),
        ({"cron": "@daily", "dst": {"gap": "skip"}}, "invalid_input", "schedule.dst"),
        ({"cron": "@daily", "timezone": "Europe/Berlin", "dst": {"gap": "no"}}, "invalid_input", "schedule.dst.gap"),
        ({"every": "1h", "dst": {"gap": "skip"}}, "invalid_input", "schedule.dst"),
    ],
)
async def test_a_bad_schedule_is_refused_and_nothing_is_stored(
    api: httpx.AsyncClient, schedule: dict[str, Any], code: str, field: str
) -> None:
    answer = await api.post("/v1/jobs", json={"task": "noop", "job_id": "bad", "schedule": schedule})
    refused = problem(answer)
    assert (answer.status_code, refused["code"], refused["field"]) == (422, code, field)
    assert refused.get("hint") or refused.get("expected")
    assert (await api.get("/v1/jobs/bad")).status_code == 404
