"""Job files: all or nothing, the same files again change nothing, what others own stays, and an export round-trips."""

from __future__ import annotations

from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.operations.files.registry import KINDS
from mainspring.wire.files import FILE_KINDS

pytestmark = pytest.mark.anyio

CALENDAR = {"weekdays": ["MON", "TUE", "WED", "THU", "FRI"], "holidays": {"country": "DE"}}
EVERYTHING: dict[str, dict[str, Any]] = {
    "calendars": {"work-days": CALENDAR, "office": {"hours": {"from": "09:00", "to": "17:00"}, "description": "ours"}},
    "limits": {"mails": {"concurrency": 5, "rate": "100/m"}, "heavy": {"rate": {"rate": "5/s", "burst": 9}}},
    "jobs": {
        "invoices": {
            "schedule": {"cron": "0 9 * * *", "timezone": "Europe/Berlin", "calendar": "work-days", "jitter": "5m"},
            "command": "echo invoices", "queue": "mails", "priority": "high", "timeout": "15m",
            "retry": {"max_attempts": 7, "base": "5s"}, "env": {"A": "1"}, "labels": {"team": "billing"},
        },
        "sweep": {"schedule": {"every": "10m"}, "task": "sweep", "payload": {"depth": 1.5, "of": ["a", None]}},
        "month-end": {
            "schedule": {"rrule": "FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=17", "timezone": "America/New_York"},
            "http": {"url": "https://example.org/x", "method": "POST"}, "misfire": {"policy": "all", "cap": 5},
        },
        "after-sweep": {"schedule": {"after": ["sweep"]}, "command": ["echo", "a b"], "overlap": "queue"},
        "by-hand": {"task": "report", "concurrency": 2, "description": "two lines\nof text"},
        "hourly": {"cron": "H * * * *", "command": "true", "rate": "5/m", "circuit_breaker": {"failures": 3}},
    },
    "workflows": {
        "nightly": {
            "schedule": {"cron": "0 2 * * *"}, "timeout": "1h", "parameters": {"region": "eu"}, "queue": "heavy",
            "steps": [
                {"name": "extract", "task": "etl", "payload": {"region": {"$parameter": "region"}}},
                {"name": "report", "command": "echo report", "depends_on": ["extract"], "timeout": "5m"},
            ],
        }
    },
}  # fmt: skip


def objects_of(files: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"kind": kind, "id": name, "body": body, "source": "jobs.yaml:1"}
        for kind, entries in files.items()
        for name, body in entries.items()
    ]


class Files:
    def __init__(self, api: httpx.AsyncClient) -> None:
        self.api = api

    async def send(self, verb: str, files: dict[str, dict[str, Any]], **options: Any) -> httpx.Response:
        body = {"owner": "billing", "objects": objects_of(files), **options}
        return await self.api.post(f"/v1/files:{verb}", json=body)

    async def done(self, verb: str, files: dict[str, dict[str, Any]], **options: Any) -> dict[str, str]:
        """What was done to each object."""
        answer = await self.send(verb, files, **options)
        assert answer.status_code == 200, answer.text
        return {f"{one['kind']}/{one['id']}": one["action"] for one in answer.json()["changes"]}

    async def export(self, **options: Any) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for kind in FILE_KINDS:
            cursor: str | None = None
            while True:
                body = {"kind": kind, "cursor": cursor, "limit": 2, **options}
                answer = (await self.api.post("/v1/files:export", json=body)).json()
                found.setdefault(kind, {}).update({one["id"]: one["body"] for one in answer["objects"]})
                cursor = answer["next"]
                if cursor is None:
                    break
        return found

    async def job(self, job_id: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.api.get(f"/v1/jobs/{job_id}")).json()
        return found


@pytest.fixture
def files(api: httpx.AsyncClient) -> Files:
    return Files(api)


async def versions(connection: asyncpg.Connection) -> dict[str, int]:
    rows = await connection.fetch(
        "select 'job ' || job_id, version from mainspring.jobs union all "
        "select 'calendar ' || name, version from mainspring.calendars union all "
        "select 'gate ' || queue, version from mainspring.gates where queue is not null"
    )
    return dict(rows)


def test_every_kind_of_a_file_has_its_operations() -> None:
    assert {kind.section for kind in KINDS} == {*FILE_KINDS}


async def test_a_plan_changes_nothing_and_says_what_the_application_does(
    files: Files, connection: asyncpg.Connection
) -> None:
    planned = await files.done("plan", EVERYTHING)
    assert await versions(connection) == {}
    assert await connection.fetchval("select count(*) from mainspring.file_objects") == 0
    assert await files.done("apply", EVERYTHING) == planned
    assert set(planned.values()) == {"create"}
    assert len(planned) == 11


async def test_the_same_files_again_change_no_version(files: Files, connection: asyncpg.Connection) -> None:
    await files.done("apply", EVERYTHING)
    before = await versions(connection)
    stamps = await connection.fetch("select object_id, applied_at from mainspring.file_objects order by 1")
    assert set((await files.done("apply", EVERYTHING)).values()) == {"unchanged"}
    assert await versions(connection) == before
    assert await connection.fetch("select object_id, applied_at from mainspring.file_objects order by 1") == stamps


async def test_what_is_exported_changes_nothing_when_it_is_applied(
    files: Files, connection: asyncpg.Connection
) -> None:
    await files.done("apply", EVERYTHING)
    before = await versions(connection)
    exported = await files.export()
    assert {kind: {*entries} for kind, entries in exported.items() if entries} == {
        kind: {*entries} for kind, entries in EVERYTHING.items()
    }
    assert set((await files.done("apply", exported)).values()) == {"unchanged"}
    assert await versions(connection) == before
    assert exported["jobs"]["by-hand"] == {
        "task": "report", "concurrency": [{"limit": 2}], "description": "two lines\nof text",
    }  # fmt: skip
    assert exported["jobs"]["invoices"]["timeout"] == "15m"
    assert exported["jobs"]["invoices"]["priority"] == "high"
    assert "schedule" not in exported["jobs"]["by-hand"]


async def test_one_wrong_object_and_nothing_is_changed(files: Files, connection: asyncpg.Connection) -> None:
    await files.done("apply", {"jobs": {"sweep": EVERYTHING["jobs"]["sweep"]}})
    before = await versions(connection)
    wrong = {
        "calendars": {"new": CALENDAR},
        "limits": {"mails": {"concurrency": 0}},
        "jobs": {
            "sweep": {"schedule": {"every": "1h"}, "task": "sweep"},
            "typo": {"comand": "true", "cron": "@daily"},
            "no-such-calendar": {"schedule": {"cron": "@daily", "calendar": "nwe"}, "command": "true"},
            "once": {"schedule": "now", "command": "true"},
        },
    }
    answer = await files.send("apply", wrong)
    assert answer.status_code == 422
    errors = {one["index"]: one for one in answer.json()["errors"]}
    assert "comand" in errors[3]["detail"] and "command" in errors[3]["hint"]
    assert await versions(connection) == before
    del wrong["jobs"]["typo"]
    answer = await files.send("apply", wrong)
    assert {one["field"] for one in answer.json()["errors"]} == {"objects[1].concurrency", "objects[4].schedule"}
    del wrong["jobs"]["once"]
    wrong["limits"]["mails"]["concurrency"] = 1
    answer = await files.send("apply", wrong)
    [error] = answer.json()["errors"]
    assert error["field"] == "objects[3].schedule.calendar" and "new" in error["hint"]
    assert await versions(connection) == before


async def test_a_field_that_leaves_the_file_gets_its_default_and_a_change_by_hand_is_undone(files: Files) -> None:
    job = {"schedule": {"every": "10m"}, "command": "true", "priority": "high", "retry": {"base": "5s", "cap": "9s"}}
    await files.done("apply", {"jobs": {"a": job}})
    before = await files.job("a")
    await files.api.patch("/v1/jobs/a", json={"timeout": "7m"})
    assert (await files.job("a"))["owned_by"]["changed_since"] is True
    answer = await files.send(
        "apply", {"jobs": {"a": {"schedule": {"every": "10m"}, "command": "true", "retry": {"base": "5s"}}}}
    )
    [change] = answer.json()["changes"]
    assert {one["field"] for one in change["fields"]} == {"timeout", "priority", "retry"}
    assert {"field": "timeout", "before": 420.0, "after": 3600.0} in change["fields"]
    after = await files.job("a")
    assert (after["priority"], after["timeout"], after["retry"]["base"]) == ("normal", 3600.0, 5.0)
    assert after["retry"]["cap"] != 9.0
    assert after["next_fire_at"] == before["next_fire_at"]  # the interval goes on in its steps
    owned = after["owned_by"]
    assert (owned["owner"], owned["source"], owned["changed_since"]) == ("billing", "jobs.yaml:1", False)


async def test_prune_removes_what_the_owner_had_and_nothing_else(files: Files, connection: asyncpg.Connection) -> None:
    await files.done("apply", EVERYTHING)
    await files.done("apply", {"jobs": {"theirs": {"command": "true", "cron": "@daily"}}}, owner="shop")
    await files.api.post("/v1/jobs", json={"job_id": "by-a-person", "command": "true", "cron": "@daily"})
    run = (await files.api.post("/v1/jobs/by-hand:runNow", json={})).json()["run_id"]
    kept = {"jobs": {"invoices": {"cron": "@daily", "command": "true"}}}
    without = (await files.send("plan", kept)).json()
    assert {one["id"] for one in without["left"]} == {
        "work-days", "office", "mails", "heavy", "sweep", "month-end", "after-sweep", "by-hand", "hourly", "nightly",
    }  # fmt: skip
    planned = (await files.send("plan", kept, prune=True)).json()
    removed = {one["id"]: one for one in planned["changes"] if one["action"] == "remove"}
    assert removed["by-hand"]["live_runs"] == [run]
    assert (await files.job("by-hand"))["status"] != "CANCELLED"
    done = await files.done("apply", kept, prune=True, expected=planned["digest"])
    assert done["jobs/by-hand"] == "remove"
    assert (await files.job("by-hand"))["status"] == "CANCELLED"
    assert (await files.api.get(f"/v1/runs/{run}")).json()["status"] == "CANCELLED"
    for job in ("invoices", "theirs", "by-a-person"):
        assert (await files.job(job))["status"] == "SCHEDULED"
    assert (await files.api.get("/v1/calendars/work-days")).status_code == 404
    assert await files.done("apply", kept, prune=True) == {"jobs/invoices": "unchanged"}


async def test_a_job_that_a_person_made_anew_is_not_pruned(files: Files) -> None:
    job = {"command": "true", "cron": "@daily"}
    await files.done("apply", {"jobs": {"a": job, "b": job}})
    await files.api.delete("/v1/jobs/a")
    await files.api.post("/v1/jobs", json={"job_id": "a", **job})
    assert await files.done("apply", {"jobs": {"b": job}}, prune=True) == {"jobs/b": "unchanged"}
    assert (await files.job("a"))["status"] == "SCHEDULED"


async def test_what_others_own_is_refused_unless_it_is_taken_over(files: Files, api: httpx.AsyncClient) -> None:
    job = {"command": "true", "cron": "@daily"}
    await files.done("apply", {"jobs": {"a": job}}, owner="shop")
    refused = await files.send("apply", {"jobs": {"a": job}})
    [error] = refused.json()["errors"]
    assert error["code"] == "owned_elsewhere" and "shop (jobs.yaml:1)" in error["detail"]
    assert await files.done("apply", {"jobs": {"a": job}}, take_over=True) == {"jobs/a": "adopt"}
    assert (await files.job("a"))["owned_by"]["owner"] == "billing"
    await api.post("/v1/jobs", json={"job_id": "b", "declared_by": "app", **job})
    refused = await files.send("apply", {"jobs": {"b": job}})
    assert refused.json()["errors"][0]["code"] == "declared_in_code"


async def test_another_plan_than_the_confirmed_one_is_refused(files: Files) -> None:
    job = {"command": "true", "cron": "@daily"}
    planned = (await files.send("plan", {"jobs": {"a": job}})).json()
    await files.api.post("/v1/jobs", json={"job_id": "a", "command": "false", "cron": "@daily"})
    refused = await files.send("apply", {"jobs": {"a": job}}, expected=planned["digest"])
    assert (refused.status_code, refused.json()["code"]) == (409, "plan_changed")
    assert (await files.job("a"))["command"] == "false"


async def test_a_paused_job_stays_paused_and_a_cancelled_one_is_created_again(files: Files) -> None:
    job = {"command": "true", "cron": "@daily"}
    await files.done("apply", {"jobs": {"a": job, "b": job}})
    await files.api.post("/v1/jobs/a:pause")
    await files.api.delete("/v1/jobs/b")
    changed = {"jobs": {"a": {**job, "cron": "@hourly"}, "b": job}}
    assert await files.done("apply", changed) == {"jobs/a": "change", "jobs/b": "create"}
    assert ((await files.job("a"))["status"], (await files.job("b"))["generation"]) == ("PAUSED", 2)


async def test_jobs_of_a_file_may_follow_each_other_in_any_order(files: Files) -> None:
    chain = {
        "a": {"schedule": {"after": ["b"]}, "command": "true"},
        "b": {"schedule": {"after": ["c"]}, "command": "true"},
        "c": {"cron": "@daily", "command": "true"},
    }
    assert set((await files.done("apply", {"jobs": chain})).values()) == {"create"}
    assert (await files.job("a"))["after"] == ["b"]
    chain["c"] = {"schedule": {"after": ["a"]}, "command": "true"}
    refused = await files.send("apply", {"jobs": chain})
    assert refused.json()["errors"][0]["code"] == "cycle"
