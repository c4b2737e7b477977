"""A job has one seed for ever: `H` and jitter take their values from it, whatever is changed and however often."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring import AsyncClient, Mainspring
from mainspring.domain.job import JobDefinition
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind
from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.roles.assembly import Assembly
from mainspring.sdk.app.ensure_schedules import ScheduleKeeper
from mainspring.store import jobs
from tests.conftest import TOKEN

pytestmark = pytest.mark.anyio

BERLIN = {"timezone": "Europe/Berlin"}
BOUNDS = {"start": "2031-01-01T00:00:00Z", "end": "2041-01-01T00:00:00Z"}
SCHEDULES: dict[str, dict[str, Any]] = {
    "H": {"cron": "H H * * *"},
    "H in a zone": {"cron": "H(0-29) 3 * * *", **BERLIN, "dst": {"gap": "skip", "overlap": "last"}},
    "H and jitter": {"cron": "H H * * *", "jitter": "10m"},
    "H and bounds": {"cron": "H/15 * * * *", **BOUNDS, "max_runs": 9},
    "H in a calendar": {"cron": "H 9 * * *", "calendar": "c", "outside": "next"},
    "cron and jitter": {"cron": "0 9 * * *", "jitter": "1h", **BERLIN},
    "all at once": {"cron": "H 9 * * *", "jitter": "10m", "calendar": "c", **BERLIN, **BOUNDS},
    "every": {"every": "1h", "jitter": "20m"},
    "every from an anchor": {"every": "1h", "anchor": "2026-01-01T00:00:07Z", "jitter": "20m"},
    "every in a calendar": {"every": "1h", "jitter": "20m", "calendar": "c"},
    "rrule": {"rrule": "FREQ=DAILY;INTERVAL=2;BYHOUR=9", "jitter": "1h", **BERLIN},
    "rrule without a day": {
        "rrule": "DTSTART;TZID=Europe/Berlin:20310101T090000\nRRULE:FREQ=WEEKLY;BYDAY=WE", "jitter": "1h",
        "exdates": ["2031-01-08T09:00:00+01:00"],
    },
}  # fmt: skip
MORE = {"misfire": {"policy": "all", "cap": 5}, "overlap": "queue"}
SEEDED = pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
WAYS = pytest.mark.parametrize("way", ["PUT", "PATCH"])


@pytest.fixture(autouse=True)
async def calendar(api: httpx.AsyncClient) -> None:
    answer = await api.put("/v1/calendars/c", json={"weekdays": ["MON", "TUE", "WED", "THU", "FRI"]})
    assert answer.status_code == 201


class Shown:
    """What people and the scheduler know of the job `j`."""

    def __init__(self, api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
        self._api, self._connection = api, connection

    async def all(self, job_id: str = "j") -> dict[str, Any]:
        row = await self._connection.fetchrow(
            "select schedule::jsonb::text as schedule, next_fire_at, paused_from, runs_left from mainspring.jobs"
            " where job_id = $1",
            job_id,
        )
        view = (await self._api.get(f"/v1/jobs/{job_id}")).json()
        upcoming = (await self._api.get(f"/v1/jobs/{job_id}/upcoming")).json()
        names = ("schedule", "schedule_in_words", "next_fire_at", "cron_expression", "jitter")
        return {"stored": dict(row), "upcoming": upcoming, **{name: view[name] for name in names}}

    async def seed(self, job_id: str = "j") -> int | None:
        text = await self._connection.fetchval("select schedule::text from mainspring.jobs where job_id = $1", job_id)
        return json.loads(text).get("seed")  # type: ignore[no-any-return]


@pytest.fixture
def shown(api: httpx.AsyncClient, connection: asyncpg.Connection) -> Shown:
    return Shown(api, connection)


async def ok(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code in (200, 201), answer.text
    return dict(answer.json())


@WAYS
@SEEDED
async def test_the_same_schedule_again_changes_nothing(
    api: httpx.AsyncClient, shown: Shown, schedule: dict[str, Any], way: str
) -> None:
    job = {"task": "noop", "name": "j", "schedule": schedule, **MORE}
    bodies = [job, job, {"schedule": {"jitter": schedule.get("jitter")}}]
    if "cron" in schedule:
        bodies += [{field: schedule["cron"]} for field in ("schedule", "cron", "cron_expression")]
    await ok(await api.post("/v1/jobs", json={**job, "job_id": "j"}))
    assert await shown.seed() is not None
    for state in ("scheduled", "paused"):
        if state == "paused":
            await ok(await api.post("/v1/jobs/j:pause"))
        before = await shown.all()
        for body in bodies:
            await ok(await api.request(way, "/v1/jobs/j", json=body))
            assert await shown.all() == before, (state, body)


@WAYS
async def test_the_same_schedule_of_a_workflow_changes_nothing(api: httpx.AsyncClient, shown: Shown, way: str) -> None:
    for number, schedule in enumerate(SCHEDULES.values()):
        workflow_id = f"w{number}"
        workflow = {"name": "w", "schedule": schedule, "steps": [{"name": "a", "task": "noop"}]}
        await ok(await api.post("/v1/workflows", json={**workflow, "workflow_id": workflow_id}))
        before = await shown.all(workflow_id)
        assert await shown.seed(workflow_id) is not None
        for body in (workflow, {"schedule": schedule}):
            await ok(await api.request(way, f"/v1/workflows/{workflow_id}", json=body))
            assert await shown.all(workflow_id) == before, schedule


async def test_a_job_file_that_is_applied_again_changes_nothing(api: httpx.AsyncClient, shown: Shown) -> None:
    """Nor do changes of other fields, whether jobs are scheduled or paused."""

    async def apply(kind: str, work: dict[str, Any]) -> list[dict[str, Any]]:
        objects = [
            {"kind": kind, "id": f"{kind}{number}", "body": {"schedule": schedule, **MORE, **work}}
            for number, schedule in enumerate(SCHEDULES.values())
        ]
        answer = await ok(await api.post("/v1/files:apply", json={"owner": kind, "objects": objects}))
        return list(answer["changes"])

    kinds: dict[str, dict[str, Any]] = {
        "jobs": {"task": "noop"}, "workflows": {"steps": [{"name": "a", "task": "noop"}]},
    }  # fmt: skip
    for kind, work in kinds.items():
        ids = [change["id"] for change in await apply(kind, work)]
        for state in ("scheduled", "paused"):
            if state == "paused":
                for job_id in ids:
                    await ok(await api.post(f"/v1/jobs/{job_id}:pause"))
            before = [await shown.all(job_id) for job_id in ids]
            assert {change["action"] for change in await apply(kind, work)} == {"unchanged"}
            work["description"] = state
            changes = await apply(kind, work)
            assert [field["field"] for change in changes for field in change["fields"]] == ["description"] * len(ids)
            assert [await shown.all(job_id) for job_id in ids] == before


@WAYS
async def test_another_schedule_has_the_same_seed(api: httpx.AsyncClient, shown: Shown, way: str) -> None:
    """So a job that goes back to the schedule of before fires at its times."""
    await ok(await api.post("/v1/jobs", json={"task": "noop", "job_id": "j", "schedule": "H H * * *"}))
    before, seed = await shown.all(), await shown.seed()
    for schedule in SCHEDULES.values():
        await ok(await api.request(way, "/v1/jobs/j", json={"schedule": schedule}))
        assert await shown.seed() == seed
    await ok(await api.request(way, "/v1/jobs/j", json={"schedule": {"cron": "0 9 * * *"}}))
    assert await shown.seed() is None  # it needs none
    await ok(await api.request(way, "/v1/jobs/j", json={"schedule": {"cron": "H H * * *"}}))
    assert await shown.all() == before


async def test_preview_shows_the_times_of_the_job(api: httpx.AsyncClient, shown: Shown) -> None:
    schedule = {"cron": "H H * * *", "jitter": "10m"}
    await ok(await api.post("/v1/jobs", json={"task": "noop", "job_id": "j", "schedule": schedule}))
    await ok(await api.put("/v1/jobs/j", json={"schedule": schedule}))
    view = await shown.all()
    preview = await ok(await api.post("/v1/schedules:preview", json={"schedule": schedule, "job_id": "j", "n": 20}))
    after = [fire["at"] for fire in preview["fires"] if fire["at"] >= view["next_fire_at"]]
    assert after == view["upcoming"]["fires"][: len(after)] and len(after) >= 19
    assert preview["schedule"] == view["schedule"]


async def test_a_schedule_of_an_application_keeps_its_seed(assembly: Assembly, shown: Shown) -> None:
    def deployed(**options: Any) -> Mainspring:
        app = Mainspring("billing")

        @app.cron("H H * * *", job_id="j", **options)
        @app.task
        def report() -> None: ...

        return app

    seeds = set()
    transport = httpx.ASGITransport(app=assembly.app)  # type: ignore[arg-type]
    async with AsyncClient("http://127.0.0.1:8700", TOKEN, transport=transport) as client:
        for options in ({}, {}, {"jitter": "5m"}, {"jitter": "5m", "description": "d"}, {"timezone": "Asia/Tokyo"}, {}):
            await ScheduleKeeper(client, deployed(**options)).ensure()
            seeds.add(await shown.seed())
    assert len(seeds) == 1 and None not in seeds


async def test_no_row_is_written_without_the_seed(
    connection: asyncpg.Connection, api: httpx.AsyncClient, shown: Shown
) -> None:
    """Whoever writes a job: the store adds the seed to a schedule that has lost it."""
    await ok(await api.post("/v1/jobs", json={"task": "noop", "job_id": "j", "schedule": "H H * * *"}))
    seed = await shown.seed()
    async with connection.transaction():
        row = await jobs.lock(connection, DEFAULT_TENANT, "j")
        assert row is not None
        without = JobDefinition(task="noop", schedule=Schedule(ScheduleKind.CRON, cron="H H * * *"))
        assert await jobs.change(
            connection, DEFAULT_TENANT, "j", row.version, status=row.status, next_fire_at=row.next_fire_at,
            paused_from=None, lane_id=row.lane_id, definition=without, now=row.now, runs_left=None,
            last_nominal_for=None,
        )  # fmt: skip
    assert await shown.seed() == seed is not None
