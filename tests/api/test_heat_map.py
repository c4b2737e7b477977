"""FEATURES 2.10: the heat map of a day and a week, with the minutes in which fires pile up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from mainspring.kernel.clock import SystemClock
from mainspring.roles.assembly import Assembly
from mainspring.store.pool import Store
from mainspring.upkeep.forecaster import ForecastMaker

pytestmark = pytest.mark.anyio


async def heat_map(api: httpx.AsyncClient, query: str = "") -> dict[str, Any]:
    answer = await api.get(f"/v1/insights/heatmap{query}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def submit(api: httpx.AsyncClient, *jobs: dict[str, Any]) -> None:
    answer = await api.post("/v1/jobs:batch", json=[{"task": "noop", **job} for job in jobs])
    assert answer.status_code == 201, answer.text


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def in_an_hour() -> str:
    """A map that begins then is the same before and after a full minute or hour."""
    return f"{datetime.now(UTC) + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"


async def test_a_day_has_cells_of_five_minutes_and_a_week_of_an_hour(api: httpx.AsyncClient) -> None:
    await submit(api, {"schedule": "*/10 * * * *"}, {"schedule": "0 9 * * *", "timezone": "Asia/Kolkata"})
    day = await heat_map(api)
    assert (day["range"], len(day["cells"]), day["cell_seconds"]) == ("day", 288, 300)
    assert (day["jobs"], day["estimated"]) == (2, False)
    assert at(day["to"]) - at(day["from"]) == timedelta(days=1)
    week = await heat_map(api, "?range=week&timezone=Asia/Kolkata")
    assert (len(week["cells"]), week["cell_seconds"]) == (168, 3600)
    assert all(cell["local"][13:] == ":00:00+05:30" for cell in week["cells"])
    (nine, *_) = [cell["fires"] for cell in week["cells"][1:] if cell["local"][11:13] == "09"]
    assert nine == 7
    assert week["fires"] == sum(cell["fires"] for cell in week["cells"])
    assert abs((at(week["as_of"]) - datetime.now(UTC)).total_seconds()) < 600


async def test_one_time_jobs_count_and_paused_jobs_do_not(api: httpx.AsyncClient) -> None:
    soon = (datetime.now(UTC) + timedelta(hours=2)).isoformat()
    await submit(
        api,
        {"schedule_time": soon}, {"schedule_time": soon}, {"schedule": "manual"}, {"schedule": {"every": "1h"}},
        {"job_id": "paused", "schedule": "* * * * *"},
    )  # fmt: skip
    await api.post("/v1/jobs/paused:pause")
    shown = await heat_map(api, f"?from={in_an_hour()}")
    assert (shown["jobs"], shown["fires"]) == (3, 26)


async def test_pile_ups_are_named_with_jobs_and_what_would_spread_them(api: httpx.AsyncClient) -> None:
    nine = [{"job_id": f"n{number}", "schedule": "0 9 * * *"} for number in range(12)]
    await submit(api, *nine, {"schedule": "30 9 * * *"}, {"schedule": "0 9 */1 * *"}, {"schedule": "5 * * * *"})
    (first, *others) = (await heat_map(api, "?range=week"))["pile_ups"]
    assert (first["fires"], first["local"][11:]) == (13, "09:00:00+00:00")
    largest, other = first["by"]
    assert (largest["schedule"], largest["jobs"], largest["fires"]) == ("0 9 * * * (UTC)", 12, 12)
    assert len(set(largest["job_ids"]) & {job["job_id"] for job in nine}) == 5
    assert largest["spread"]["cron"] == "H 9 * * *"
    assert (other["jobs"], other["spread"]) == (1, None)
    assert others == []  # the other days have the same one


async def test_from_and_timezone_are_checked(api: httpx.AsyncClient) -> None:
    now = datetime.now(UTC)
    for query, field in (
        ("range=month", "range"), ("timezone=Mars", "timezone"), ("from=soon", "from"), ("form=1", "form"),
        ("from=2020-01-01T00:00:00Z", "from"),
        (f"from={(now + timedelta(days=7, hours=1)):%Y-%m-%dT%H:%M:%SZ}", "from"),
        (f"range=week&from={(now + timedelta(days=1, hours=1)):%Y-%m-%dT%H:%M:%SZ}", "from"),
    ):  # fmt: skip
        answer = await api.get(f"/v1/insights/heatmap?{query}")
        assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text
    await submit(api, {"schedule": "0 * * * *"})
    later = now + timedelta(days=7) - timedelta(minutes=10)
    assert (await heat_map(api, f"?from={later:%Y-%m-%dT%H:%M:%SZ}"))["fires"] == 24


async def test_very_many_jobs_are_counted_ahead_of_the_request(
    assembly: Assembly, api: httpx.AsyncClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same figures, and `as_of` says when they were counted."""
    soon = (datetime.now(UTC) + timedelta(hours=2)).isoformat()
    await submit(
        api, {"schedule_time": soon}, {"schedule": {"every": "7m"}}, {"schedule": {"every": "45s"}},
        *({"schedule": "*/10 * * * *"} for _ in range(5)),
        {"schedule": "30 2 * * *", "timezone": "America/New_York"},
    )  # fmt: skip
    week = f"?range=week&from={in_an_hour()}"
    live = await heat_map(api, week)
    monkeypatch.setattr(assembly.services.heat_map_reader, "_many", 5)
    answer = await api.get("/v1/insights/heatmap")
    assert (answer.status_code, answer.json()["code"]) == (503, "forecast_not_ready")
    assert await ForecastMaker(store, SystemClock(), many=5).run_once() == 1
    assert await ForecastMaker(store, SystemClock(), many=5).run_once() == 0  # not due again
    made = await heat_map(api, week)
    same = ("jobs", "estimated", "from", "to")
    assert {name: made[name] for name in same} == {name: live[name] for name in same}
    assert made["cells"] == live["cells"]
    assert at(made["as_of"]) >= at(live["as_of"])
