"""A change of a schedule: what it names, what it keeps, and what it removes, with all members at once."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.anyio

MEMBERS = {
    "jitter": "10m", "start": "2031-01-01T00:00:00Z", "end": "2040-01-01T00:00:00Z", "max_runs": 50,
    "calendar": "c", "outside": "next", "timezone": "Europe/Berlin",
}  # fmt: skip
RULES: dict[str, dict[str, Any]] = {
    "cron": {"cron": "H 9 * * *", "dst": {"gap": "skip", "overlap": "last"}},
    "rrule": {"rrule": "FREQ=DAILY;INTERVAL=2;BYHOUR=9", "dst": {"overlap": "last"}},
    "every": {"every": "1d"},
}
SHOWN = ("cron_expression", "every", "rrule", "timezone", "dst", "jitter", "start", "end", "max_runs", "runs_left",
         "calendar", "outside", "exdates")  # fmt: skip


@pytest.fixture
async def calendar(api: httpx.AsyncClient) -> None:
    answer = await api.put("/v1/calendars/c", json={"weekdays": ["MON", "TUE", "WED", "THU", "FRI"]})
    assert answer.status_code == 201


async def make(api: httpx.AsyncClient, schedule: Any) -> dict[str, Any]:
    answer = await api.post("/v1/jobs", json={"task": "noop", "schedule": schedule})
    assert answer.status_code == 201, answer.text
    return dict((await api.get(f"/v1/jobs/{answer.json()['job_id']}")).json())


async def change(api: httpx.AsyncClient, view: dict[str, Any], body: dict[str, Any], way: str = "PATCH") -> Any:
    answer = await api.request(way, f"/v1/jobs/{view['job_id']}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def differences(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    return {name: after[name] for name in SHOWN if before[name] != after[name]}


@pytest.mark.usefixtures("calendar")
@pytest.mark.parametrize("way", ["PATCH", "PUT"])
@pytest.mark.parametrize("rule", RULES)
async def test_a_member_alone_changes_or_is_removed(api: httpx.AsyncClient, rule: str, way: str) -> None:
    before = await make(api, RULES[rule] | MEMBERS)
    for member, value, expected in (
        ("jitter", "5m", {"jitter": 300.0}),
        ("max_runs", 60, {"max_runs": 60, "runs_left": 60}),
        ("end", "2041-01-01T00:00:00Z", {"end": "2041-01-01T00:00:00Z"}),
        ("outside", "skip", {"outside": "skip"}),
        ("timezone", "Asia/Tokyo", {"timezone": "Asia/Tokyo"}),
        ("calendar", None, {"calendar": None, "outside": None} | ({"timezone": None} if rule == "every" else {})),
        ("jitter", None, {"jitter": None}),
        ("max_runs", None, {"max_runs": None, "runs_left": None}),
        ("end", None, {"end": None}),
        ("start", None, {"start": None}),
    ):
        after = await change(api, before, {"schedule": {member: value}}, way)
        assert differences(before, after) == expected, member
        assert after["next_fire_at"] is not None and after["status"] == "SCHEDULED"
        before = after
    if rule != "every":
        assert (await change(api, before, {"schedule": {"dst": None}}, way))["dst"] is None


@pytest.mark.usefixtures("calendar")
@pytest.mark.parametrize("rule", RULES)
async def test_a_line_as_text_takes_the_place_of_any_rule(api: httpx.AsyncClient, rule: str) -> None:
    before = await make(api, RULES[rule] | MEMBERS)
    for name in ("cron", "cron_expression"):
        await change(api, before, {name: "15 8 * * *"})
    after = await change(api, before, {"schedule": "30 8 * * *"})
    assert after["cron_expression"] == "30 8 * * *" and after["every"] is None and after["rrule"] is None
    assert set(differences(before, after)) <= {"cron_expression", "every", "rrule"}
    await change(api, after, {"timezone": "Asia/Tokyo"})
    whole = await change(api, after, {"schedule": {"cron": "0 7 * * *"}})
    assert (whole["calendar"], whole["jitter"], whole["timezone"], whole["max_runs"]) == (None, None, "UTC", None)


@pytest.mark.usefixtures("calendar")
async def test_the_zone_of_an_interval_in_a_calendar_changes_alone(api: httpx.AsyncClient) -> None:
    before = await make(api, {"every": "1h", "calendar": "c"})
    after = await change(api, before, {"timezone": "Asia/Tokyo"})
    assert differences(before, after) == {"timezone": "Asia/Tokyo"}
    plain = await make(api, {"every": "1h"})
    refused = await api.patch(f"/v1/jobs/{plain['job_id']}", json={"timezone": "Asia/Tokyo"})
    assert (refused.status_code, refused.json()["field"]) == (422, "timezone")


async def test_a_rule_goes_on_from_its_beginning(api: httpx.AsyncClient) -> None:
    """Every second day, from the creation on: a change of the jitter neither moves the days nor refuses an exdate."""
    before = await make(api, {"rrule": "FREQ=DAILY;INTERVAL=2;BYHOUR=9"})
    upcoming = (await api.get(f"/v1/jobs/{before['job_id']}/upcoming")).json()["fires"]
    after = await change(api, before, {"schedule": {"exdates": [upcoming[1]]}})
    after = await change(api, after, {"schedule": {"jitter": "1m"}})
    after = await change(api, after, {"schedule": {"jitter": None, "max_runs": 3}})
    following = (await api.get(f"/v1/jobs/{before['job_id']}/upcoming")).json()["fires"]
    assert following[:2] == [upcoming[0], upcoming[2]]
    after = await change(api, after, {"schedule": {"exdates": None}})
    assert after["exdates"] == []


@pytest.mark.parametrize(
    ("schedule", "field"),
    [
        ({}, "schedule"),
        ({"cron": None}, "schedule"),
        ({"outside": "next"}, "schedule.outside"),
        ({"dst": {"gap": "skip"}}, "schedule.dst"),
        ({"exdates": ["2031-01-01T00:00:00Z"]}, "schedule.exdates"),
        ({"jitter": "2d"}, "schedule.jitter"),
        ({"start": "2031-01-01T00:00:00Z", "end": "2030-01-01T00:00:00Z"}, "schedule.end"),
        ({"calendar": "no"}, "schedule.calendar"),
        ({"timezone": "Mars/Base"}, "schedule.timezone"),
    ],
)
async def test_a_change_that_does_not_fit_changes_nothing(
    api: httpx.AsyncClient, schedule: dict[str, Any], field: str
) -> None:
    before = await make(api, {"every": "1d", "jitter": "1m"})
    refused = await api.patch(f"/v1/jobs/{before['job_id']}", json={"schedule": schedule})
    assert (refused.status_code, refused.json()["field"]) == (422, field), refused.text
    assert (await api.get(f"/v1/jobs/{before['job_id']}")).json() == before
