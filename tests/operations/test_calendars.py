"""Calendars: jobs fire within them, follow their changes, and keep them from being deleted."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.domain.schedules import calendar_rules, fires
from mainspring.operations.calendars.recompute import Recomputer
from mainspring.roles.assembly import Assembly
from mainspring.upkeep.calendar_recomputer import CalendarRecomputer
from mainspring.upkeep.library_versions import LibraryVersions, newer
from tests.operations.firing import fire_due
from tests.operations.tenants import Tenants, several_tenants
from tests.store.rows import live

pytestmark = pytest.mark.anyio

WORKDAYS = ["MON", "TUE", "WED", "THU", "FRI"]
DAILY = {"cron": "0 9 * * *", "timezone": "Europe/Berlin"}


async def put(api: httpx.AsyncClient, name: str, status: int = 200, version: int | None = None, **rules: Any) -> Any:
    headers = {} if version is None else {"If-Match": f'"{version}"'}
    answer = await api.put(f"/v1/calendars/{name}", json=rules, headers=headers)
    assert answer.status_code == status, answer.text
    return answer.json()


async def make(api: httpx.AsyncClient, calendar: str | None = None, status: int = 201, **fields: Any) -> Any:
    schedule = {**fields.pop("schedule", DAILY), **({} if calendar is None else {"calendar": calendar})}
    answer = await api.post("/v1/jobs", json={"task": "noop", "schedule": schedule, **fields})
    assert answer.status_code == status, answer.text
    return answer.json() if status != 201 else answer.json()["job_id"]


async def job(api: httpx.AsyncClient, job_id: str) -> Any:
    return (await api.get(f"/v1/jobs/{job_id}")).json()


async def next_fire(api: httpx.AsyncClient, job_id: str) -> datetime | None:
    text = (await job(api, job_id))["next_fire_at"]
    return None if text is None else datetime.fromisoformat(text)


def recomputer(assembly: Assembly, size: int = 1000, versions: tuple[str, str] = ("2026.1", "0.100")) -> Any:
    duty = Recomputer(assembly.store, assembly.lanes, size)
    return CalendarRecomputer(assembly.store, assembly.signals, duty, LibraryVersions(*versions))


def forget_rules() -> None:
    calendar_rules._known._rules.clear()
    fires.occurrences.cache_clear()
    fires.jittered.cache_clear()


async def test_a_calendar_is_created_changed_listed_and_deleted(api: httpx.AsyncClient) -> None:
    rules = {
        "timezone": "Europe/Berlin",
        "holidays": {"country": "de", "subdivision": "be"},
        "dates": ["2026-12-24", {"from": "2026-12-27", "to": "2026-12-31"}],
        "weekdays": ["fri", "MON"],
        "hours": {"MON": {"from": "09:00", "to": "17:00"}, "FRI": [{"from": "09:00", "to": "24:00"}]},
        "blackouts": [
            {"days": ["MON"], "from": "10:00", "to": "11:00"},
            {"from": "2026-12-20T00:00", "to": "2026-12-21T12:00"},
        ],
        "description": "business",
    }
    made = await put(api, "de", 201, **rules)
    assert made["version"] == 1 and made["jobs"] == made["pending"] == made["recomputed"] == 0
    assert made["holidays"] == [{"country": "DE", "subdivision": "BE"}] and made["weekdays"] == ["MON", "FRI"]
    shown = {name: made[name] for name in rules}
    assert (await put(api, "de", **shown))["version"] == 1  # what is shown can be sent, and is the same
    assert (await put(api, "de", version=1, weekdays=WORKDAYS))["version"] == 2
    answer = await api.get("/v1/calendars/de")
    assert answer.headers["ETag"] == '"2"' and "holidays" not in answer.json()
    assert (await put(api, "de", 412, version=1, weekdays=["MON"]))["code"] == "version_mismatch"
    assert (await put(api, "new", 412, version=1, weekdays=["MON"]))["code"] == "version_mismatch"
    await put(api, "at", 201, holidays=[{"country": "AT"}])
    page = (await api.get("/v1/calendars?limit=1")).json()
    assert [one["name"] for one in page["calendars"]] == ["at"]
    page = (await api.get("/v1/calendars", params={"cursor": page["next"]})).json()
    assert [one["name"] for one in page["calendars"]] == ["de"] and page["next"] is None
    assert (await api.delete("/v1/calendars/de", headers={"If-Match": "1"})).status_code == 412
    assert (await api.delete("/v1/calendars/de")).json()["version"] == 2
    assert (await api.get("/v1/calendars/de")).status_code == 404
    assert (await put(api, "de", 201))["version"] == 3  # a number never means two sets of rules


async def test_wrong_rules_are_refused_and_nothing_is_stored(api: httpx.AsyncClient) -> None:
    for name, rules, field, code in (
        ("c", {"holidays": {"country": "Germany"}}, "holidays.country", "unknown_country"),
        ("c", {"day": ["MON"]}, "day", "unknown_field"),
        ("c", {"weekdays": "MON"}, "weekdays", "invalid_input"),
        ("a b", {}, "name", "invalid_input"),
    ):
        problem = await put(api, name, 422, **rules)
        assert (problem["field"], problem["code"]) == (field, code)
    assert (await api.get("/v1/calendars")).json()["calendars"] == []


async def test_jobs_name_their_calendar(api: httpx.AsyncClient) -> None:
    await put(api, "de-business", 201, weekdays=WORKDAYS)
    problem = await make(api, "de-busines", 422)
    assert (problem["code"], problem["field"]) == ("unknown_calendar", "schedule.calendar")
    assert "'de-business'" in problem["hint"]
    problem = await make(api, "de-business", 422, schedule={"cron": "0 9 * * SAT"})
    assert (problem["code"], problem["field"]) == ("calendar_leaves_no_fire", "schedule.calendar")
    for schedule, field in (
        ({"at": "2040-01-01T00:00:00Z", "calendar": "de-business"}, "schedule.calendar"),
        ({"every": "1h", "outside": "next"}, "schedule.outside"),
        ({"every": "1h", "calendar": "de-business", "outside": "later"}, "schedule.outside"),
        ({"every": "1h", "calendar": "a b"}, "schedule.calendar"),
    ):
        problem = await make(api, None, 422, schedule=schedule)
        assert problem["field"] == field
    batch = [{"task": "noop", "schedule": {**DAILY, "calendar": name}} for name in ("de-business", "no")]
    answer = await api.post("/v1/jobs:batch", json={"jobs": batch})
    assert answer.status_code == 422 and answer.json()["errors"][0]["field"] == "jobs[1].schedule.calendar"
    assert (await api.get("/v1/jobs")).json()["jobs"] == []
    job_id = await make(api, "de-business", schedule={"cron": "0 9 * * SAT", "outside": "NEXT"})
    view = await job(api, job_id)
    assert (view["calendar"], view["calendar_version"], view["outside"]) == ("de-business", 1, "next")
    assert "calendar de-business" in view["schedule"]
    found = await next_fire(api, job_id)
    assert found is not None and found.weekday() == 0
    upcoming = (await api.get(f"/v1/jobs/{job_id}/upcoming?n=3")).json()["fires"]
    assert {datetime.fromisoformat(one).weekday() for one in upcoming} == {0}


async def test_two_jobs_that_differ_in_the_calendar_fire_at_other_times(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    now: datetime = await connection.fetchval("select clock_timestamp()")
    anchor = (now - timedelta(hours=1)).replace(microsecond=0)
    tomorrow = anchor + timedelta(days=1)
    await put(api, "not-tomorrow", 201, dates=[tomorrow.date().isoformat()], timezone="UTC")
    daily = {"every": "1d", "anchor": anchor.isoformat()}
    plain, within = await make(api, schedule=daily), await make(api, "not-tomorrow", schedule=daily)
    await connection.execute("update mainspring.jobs set next_fire_at = $1", anchor)
    forget_rules()  # another process fires
    assert await fire_due(assembly, connection) == 2
    assert await next_fire(api, plain) == tomorrow
    assert await next_fire(api, within) == tomorrow + timedelta(days=1)


@pytest.mark.parametrize("path", ["upcoming", "pause", "patch"])
async def test_rules_are_loaded_by_whoever_needs_them(
    api: httpx.AsyncClient, connection: asyncpg.Connection, path: str
) -> None:
    await put(api, "c", 201, weekdays=["SUN"], timezone="UTC")
    job_id = await make(api, "c", schedule={"every": "1d"})
    await connection.execute("update mainspring.jobs set next_fire_at = clock_timestamp() - interval '1 second'")
    forget_rules()
    if path == "upcoming":
        ahead = (await api.get(f"/v1/jobs/{job_id}/upcoming?n=3")).json()["fires"]
        assert {datetime.fromisoformat(one).weekday() for one in ahead[1:]} == {6}
    else:
        url = f"/v1/jobs/{job_id}"
        answer = await (api.post(f"{url}:pause") if path == "pause" else api.patch(url, json={"priority": "high"}))
        assert answer.status_code == 200, answer.text
        ahead = (await api.get(f"/v1/jobs/{job_id}/upcoming?n=1")).json()["fires"]
        assert datetime.fromisoformat(ahead[0]).weekday() == 6


async def test_a_changed_calendar_moves_the_next_fires(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    await put(api, "c", 201, timezone="Europe/Berlin")
    ids = [await make(api, "c") for _ in range(7)]
    paused, cancelled, away, other = ids[:4]
    await api.post(f"/v1/jobs/{paused}:pause")
    await api.delete(f"/v1/jobs/{cancelled}")
    await api.patch(f"/v1/jobs/{away}", json={"schedule": DAILY})
    before = await next_fire(api, other)
    assert before is not None
    closed = before.date().isoformat()
    assert (await put(api, "c", dates=[closed], timezone="Europe/Berlin"))["pending"] == 5
    duty = recomputer(assembly, size=2)
    assert await duty.run_once() == 5
    view = (await api.get("/v1/calendars/c")).json()
    assert (view["jobs"], view["pending"], view["recomputed"]) == (5, 0, 5)
    for job_id in ids[3:]:
        assert await next_fire(api, job_id) > before  # type: ignore[operator]
        assert (await job(api, job_id))["calendar_version"] == 2
    assert await next_fire(api, away) == before
    assert (await job(api, cancelled))["calendar_version"] == 1
    assert (await api.get(f"/v1/jobs/{paused}/upcoming?n=1")).json()["fires"] != [before.isoformat()]
    await api.post(f"/v1/jobs/{cancelled}:resume")  # it follows the current rules
    assert await next_fire(api, cancelled) > before  # type: ignore[operator]
    assert await duty.run_once() == 0
    assert (await put(api, "c", dates=[closed], timezone="Europe/Berlin", description="x"))["pending"] == 0


async def test_what_is_due_fires_by_the_old_rules(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    await put(api, "c", 201, timezone="UTC")
    now: datetime = await connection.fetchval("select clock_timestamp()")
    due = (now - timedelta(seconds=2)).replace(microsecond=0)
    job_id = await make(api, "c", schedule={"every": "1h", "anchor": (due - timedelta(hours=5)).isoformat()})
    held = await make(api, "c", schedule={"every": "1h", "anchor": (due - timedelta(hours=5)).isoformat()})
    await api.post(f"/v1/jobs/{held}:pause")
    await connection.execute("update mainspring.jobs set next_fire_at = $1 where job_id = $2", due, job_id)
    await connection.execute("update mainspring.jobs set paused_from = $1 where job_id = $2", due, held)
    today, tomorrow = now.date(), now.date() + timedelta(days=1)
    await put(api, "c", timezone="UTC", dates=[today.isoformat(), tomorrow.isoformat()])
    duty = recomputer(assembly)
    assert await duty.run_once() == 1  # the paused one
    assert (await api.get("/v1/calendars/c")).json()["pending"] == 1
    missed = (await api.get(f"/v1/jobs/{held}/missed")).json()
    assert [(datetime.fromisoformat(one["first"]), one["count"]) for one in missed] == [(due, 1)]
    assert await fire_due(assembly, connection) == 1
    assert [row["scheduled_for"] for row in await live(connection, job_id)] == [due]
    assert await duty.run_once() == 1
    found = await next_fire(api, job_id)
    assert found is not None and found.date() > tomorrow
    view = (await api.get("/v1/calendars/c")).json()
    assert (view["pending"], view["recomputed"]) == (0, 2)


async def test_a_fire_that_was_prepared_before_the_recomputation_fails(
    api: httpx.AsyncClient, assembly: Assembly
) -> None:
    """Otherwise it would write the fire after it by the old rules."""
    await put(api, "c", 201, timezone="UTC")
    job_id = await make(api, "c")
    version = (await job(api, job_id))["version"]
    await put(api, "c", timezone="UTC", dates=["2035-01-01"])
    await recomputer(assembly).run_once()
    assert (await job(api, job_id))["version"] == version + 1


async def test_a_recomputation_that_was_cut_off_is_finished_by_another(
    api: httpx.AsyncClient, assembly: Assembly, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(api, "c", 201)
    for _ in range(5):
        await make(api, "c")
    await put(api, "c", dates=["2035-01-01"])
    write, calls = Recomputer._write, []

    async def cut_off(self: Recomputer, *args: Any) -> int:
        if calls:
            raise ConnectionResetError
        calls.append(1)
        return await write(self, *args)

    monkeypatch.setattr(Recomputer, "_write", cut_off)
    with pytest.raises(ConnectionResetError):
        await recomputer(assembly, size=2).run_once()
    view = (await api.get("/v1/calendars/c")).json()
    assert (view["pending"], view["recomputed"]) == (3, 2)
    monkeypatch.undo()
    assert await recomputer(assembly, size=2).run_once() == 3
    view = (await api.get("/v1/calendars/c")).json()
    assert (view["pending"], view["recomputed"]) == (0, 5)


async def test_two_recomputations_at_once_count_each_job_once(api: httpx.AsyncClient, assembly: Assembly) -> None:
    await put(api, "c", 201)
    for _ in range(6):
        await make(api, "c")
    await put(api, "c", dates=["2035-01-01"])
    await asyncio.gather(*(recomputer(assembly, size=2).run_once() for _ in range(3)))
    await recomputer(assembly, size=2).run_once()
    view = (await api.get("/v1/calendars/c")).json()
    assert (view["pending"], view["recomputed"]) == (0, 6)


async def test_a_change_keeps_or_replaces_the_calendar(api: httpx.AsyncClient) -> None:
    await put(api, "c", 201, weekdays=["SUN"])
    job_id = await make(api, "c")
    await api.patch(f"/v1/jobs/{job_id}", json={"cron": "0 10 * * *"})
    view = await job(api, job_id)
    assert (view["calendar"], view["cron_expression"]) == ("c", "0 10 * * *")
    refused = await api.patch(f"/v1/jobs/{job_id}", json={"schedule": {**DAILY, "calendar": "d"}})
    assert refused.status_code == 422 and refused.json()["code"] == "unknown_calendar"
    refused = await api.patch(f"/v1/jobs/{job_id}", json={"cron": "0 10 * * MON"})
    assert refused.status_code == 422 and refused.json()["code"] == "calendar_leaves_no_fire"
    await api.patch(f"/v1/jobs/{job_id}", json={"schedule": DAILY})
    assert (await job(api, job_id))["calendar"] is None
    hourly = await make(api, schedule={"every": "1h"})
    await api.patch(f"/v1/jobs/{hourly}", json={"schedule": {"every": "1h", "calendar": "c", "timezone": "Asia/Tokyo"}})
    view = await job(api, hourly)
    assert (view["calendar"], view["timezone"]) == ("c", "Asia/Tokyo")
    found = await next_fire(api, hourly)
    assert found is not None and (found + timedelta(hours=9)).weekday() == 6


@pytest.mark.parametrize(
    "rule", [{"cron": "0 9 * * MON"}, {"rrule": "FREQ=WEEKLY;BYDAY=MO;BYHOUR=9"}], ids=["cron", "rrule"]
)
async def test_a_job_without_a_fire_is_completed_and_goes_on_when_the_calendar_allows_one(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, rule: dict[str, Any]
) -> None:
    await put(api, "c", 201, weekdays=["MON"])
    schedule = {**rule, "calendar": "c", "jitter": "10m"}
    ids = [await make(api, schedule=schedule) for _ in range(3)]
    paused, made, ended = [await make(api, schedule={**schedule, "max_runs": 5, "end": "2040-01-01T00:00:00Z"})
                           for _ in range(3)]  # fmt: skip
    await api.post(f"/v1/jobs/{paused}:pause")
    await put(api, "c", weekdays=["TUE"])
    await recomputer(assembly, size=2).run_once()
    for job_id in (*ids, made, ended):
        view = await job(api, job_id)
        assert (view["status"], view["next_fire_at"]) == ("COMPLETED", None)
    assert (await job(api, paused))["status"] == "PAUSED"
    assert (await api.get("/v1/calendars/c")).json()["pending"] == 0
    await connection.execute("update mainspring.jobs set runs_left = 0 where job_id = $1", made)
    await connection.execute(
        "update mainspring.jobs set schedule = jsonb_set(schedule::jsonb, '{end}', '\"2020-01-01T00:00:00Z\"')::json"
        " where job_id = $1", ended,
    )  # fmt: skip
    await put(api, "c", weekdays=["MON", "TUE"])
    await recomputer(assembly, size=2).run_once()
    for job_id in ids:
        found = await next_fire(api, job_id)
        assert (await job(api, job_id))["status"] == "SCHEDULED" and found is not None and found.weekday() == 0
    assert {(await job(api, one))["status"] for one in (made, ended)} == {"COMPLETED"}
    resumed = (await api.post(f"/v1/jobs/{paused}:resume")).json()
    assert resumed["status"] == "SCHEDULED" and resumed["next_fire_at"] is not None
    view = (await api.get("/v1/calendars/c")).json()
    assert (view["jobs"], view["pending"]) == (4, 0)


async def test_a_calendar_in_use_is_not_deleted(api: httpx.AsyncClient) -> None:
    await put(api, "c", 201)
    ids = sorted([await make(api, "c", job_id=f"job-{number:02}") for number in range(12)])
    refused = await api.delete("/v1/calendars/c")
    assert (refused.status_code, refused.json()["code"]) == (409, "calendar_in_use")
    detail = refused.json()["detail"]
    assert "12 jobs" in detail and all(one in detail for one in ids[:10]) and ids[10] not in detail
    for one in ids:
        await api.delete(f"/v1/jobs/{one}")
    assert (await api.delete("/v1/calendars/c")).status_code == 200
    gone = await api.post(f"/v1/jobs/{ids[0]}:resume")
    assert (gone.status_code, gone.json()["code"]) == (422, "unknown_calendar")


async def test_two_changes_of_one_version(api: httpx.AsyncClient) -> None:
    await put(api, "c", 201)

    async def change(day: str) -> int:
        answer = await api.put("/v1/calendars/c", json={"weekdays": [day]}, headers={"If-Match": '"1"'})
        return answer.status_code

    assert sorted(await asyncio.gather(*(change(day) for day in WORKDAYS))) == [200, 412, 412, 412, 412]
    assert (await api.get("/v1/calendars/c")).json()["version"] == 2


async def test_jobs_and_changes_at_once_leave_no_job_behind(api: httpx.AsyncClient, assembly: Assembly) -> None:
    await put(api, "c", 201)

    async def submit(number: int) -> int:
        answer = await api.post("/v1/jobs", json={"task": "noop", "schedule": {**DAILY, "calendar": "c"}})
        return answer.status_code

    async def change(number: int) -> int:
        answer = await api.put("/v1/calendars/c", json={"dates": [f"2035-01-{number + 1:02}"]})
        return answer.status_code

    done = await asyncio.gather(*(act(number) for number in range(8) for act in (submit, change)))
    assert set(done) <= {200, 201, 409}
    await recomputer(assembly).run_once()
    view = (await api.get("/v1/calendars/c")).json()
    assert view["pending"] == 0
    jobs = (await api.get("/v1/jobs")).json()["jobs"]
    assert {one["calendar_version"] for one in jobs} <= {view["version"]}


async def test_calendars_belong_to_their_tenant(assembly: Assembly, api: httpx.AsyncClient) -> None:
    async with several_tenants(assembly, api) as tenants:
        assert isinstance(tenants, Tenants)
        (other,) = await tenants.add("other")
        await put(api, "c", 201, weekdays=["SUN"])
        assert (await other.get("/v1/calendars/c")).status_code == 404
        assert (await make(other, "c", 422))["code"] == "unknown_calendar"
        await put(other, "c", 201, weekdays=["MON"])
        mine, theirs = await make(api, "c"), await make(other, "c")
        assert (await next_fire(api, mine)).weekday() == 6  # type: ignore[union-attr]
        assert (await next_fire(other, theirs)).weekday() == 0  # type: ignore[union-attr]


async def test_newer_zones_or_holidays_move_next_fires(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    await put(api, "c", 201, holidays={"country": "DE"})
    zoned = await make(api)
    within = await make(api, "c", schedule={"cron": "0 9 * * *"})
    utc = await make(api, schedule={"cron": "0 9 * * *"})
    right = {one: await next_fire(api, one) for one in (zoned, within, utc)}
    first = recomputer(assembly, versions=("2026a", "0.100"))
    assert await first.run_once() == 0
    wrong = datetime(2035, 1, 1, tzinfo=UTC)
    await connection.execute("update mainspring.jobs set next_fire_at = $1", wrong)
    assert await recomputer(assembly, versions=("2026.1", "0.99")).run_once() == 0  # not newer
    assert await recomputer(assembly, size=1, versions=("2026b", "0.100")).run_once() == 3
    assert {one: await next_fire(api, one) for one in right} == {**right, utc: wrong}
    assert await connection.fetchval("select recomputed from mainspring.schedule_libraries") == 2
    assert await recomputer(assembly, versions=("2026b", "0.100")).run_once() == 0


async def test_a_backfill_makes_up_for_the_fires_of_the_calendar(api: httpx.AsyncClient) -> None:
    await put(api, "c", 201, weekdays=["SUN"], timezone="UTC")
    job_id = await make(api, "c", schedule={"cron": "0 9 * * *"})
    forget_rules()
    chosen = {"from": "2026-03-01T00:00:00Z", "to": "2026-03-29T00:00:00Z"}
    answer = await api.post(f"/v1/jobs/{job_id}:backfill", json=chosen)
    assert answer.status_code in (201, 202), answer.text
    assert answer.json()["total"] == 4


async def test_previews_and_forecasts_know_calendars(api: httpx.AsyncClient) -> None:
    await put(api, "c", 201, weekdays=["SUN"], timezone="UTC")
    await make(api, "c", schedule={"cron": "0 9 * * *"})
    forget_rules()
    seen = await api.post("/v1/schedules:preview", json={"schedule": {"cron": "0 9 * * *", "calendar": "c"}, "n": 3})
    assert seen.status_code == 200, seen.text
    assert {one["weekday"] for one in seen.json()["fires"]} == {"Sunday"}
    unknown = await api.post("/v1/schedules:preview", json={"schedule": {"cron": "0 9 * * *", "calendar": "d"}})
    assert (unknown.status_code, unknown.json()["code"]) == (422, "unknown_calendar")
    for path in ("heatmap?range=week", "upcoming"):
        forget_rules()
        answer = await api.get(f"/v1/insights/{path}")
        assert answer.status_code == 200, answer.text


def test_versions_are_compared_by_their_numbers() -> None:
    assert newer("2026b", "2026.2") == "2026b"
    assert newer("2026b", "2026c") == newer("2026.2", "2026c") == "2026c"
    assert newer("0.99", "0.108") == newer("0.108", "0.99") == "0.108"
