"""POST /v1/calendars/{name}:preview: the days of a year, and the fires that other rules would move."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.anyio

RULES = {"timezone": "Europe/Berlin", "weekdays": ["MON", "TUE", "WED", "THU", "FRI"], "holidays": {"country": "DE"}}


async def preview(api: httpx.AsyncClient, status: int = 200, **body: Any) -> Any:
    answer = await api.post("/v1/calendars/berlin:preview", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


async def test_it_shows_the_closed_days_and_the_fires_that_would_move(api: httpx.AsyncClient) -> None:
    (await api.put("/v1/calendars/berlin", json=RULES)).raise_for_status()
    for job, outside in (("skips", "skip"), ("moves", "next")):
        schedule = {"cron": "0 9 * * *", "timezone": "Europe/Berlin", "calendar": "berlin", "outside": outside}
        (await api.post("/v1/jobs", json={"job_id": job, "task": "noop", "schedule": schedule})).raise_for_status()
    before = (await api.get("/v1/jobs/skips")).json()

    stored = await preview(api, year=2027)
    days = {one["date"]: one for one in stored["closed"]}
    assert (stored["version"], stored["jobs"], stored["compared"], stored["changed"]) == (1, 2, 2, 0)
    assert days["2027-01-01"] == {"date": "2027-01-01", "because": "holiday", "name": "New Year's Day"}
    assert days["2027-01-02"] == {"date": "2027-01-02", "because": "weekday"}
    assert "2027-01-04" not in days
    assert stored["open_days"] == 365 - len(days)

    dates = {"rules": {**RULES, "weekdays": ["MON", "TUE", "WED", "THU"], "dates": ["2027-03-01"]}, "year": 2027}
    other = await preview(api, **dates)
    assert {one["because"] for one in other["closed"]} == {"holiday", "weekday", "date"}
    moved = {one["job_id"]: one for one in other["moved"]}
    assert other["changed"] == 2
    assert moved["skips"]["go"] > 40
    assert moved["skips"]["come"] == 0
    assert len(moved["skips"]["going"]) == 20
    assert moved["moves"]["go"] == moved["skips"]["go"]  # a fire of Friday is one with that of Monday
    after = (await api.get("/v1/jobs/skips")).json()
    assert (after["version"], after["next_fire_at"]) == (before["version"], before["next_fire_at"])
    assert (await api.get("/v1/calendars/berlin")).json()["version"] == 1


async def test_a_blackout_divides_a_day_or_closes_it(api: httpx.AsyncClient) -> None:
    spans = [{"from": "2028-02-01T10:00", "to": "2028-02-03T00:00"}]
    found = await preview(api, rules={"blackouts": spans}, year=2028)
    assert found["version"] is None
    assert found["open_days"] == 365
    assert found["closed"] == [
        {"date": "2028-02-01", "because": "blackout", "partly": True}, {"date": "2028-02-02", "because": "blackout"},
    ]  # fmt: skip


async def test_it_refuses_what_put_refuses(api: httpx.AsyncClient) -> None:
    assert (await preview(api, 404))["code"] == "not_found"
    wrong = await preview(api, 422, rules={"weekdays": ["FUNDAY"]})
    assert wrong["field"] == "rules.weekdays[0]"
    assert (await preview(api, 422, year=1))["field"] == "year"
