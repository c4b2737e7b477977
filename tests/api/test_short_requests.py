"""FEATURES 1.1: the requests of the documentation, copied literally."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from tests.api.bookkeeping import problem, rows

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json"}
EMAIL = """{"job_type": "email_send", "schedule_time": "2036-12-31T23:59:59Z", "payload": {"user_id": 123, "body": "..."}, "retries": 3}"""  # noqa: E501
CLEANUP = """{"name": "Daily Data Cleanup", "schedule_type": "CRON", "cron_expression": "0 0 * * *",
 "payload": {"cleanup_target": "old_logs", "retention_days": 30}, "max_retries": 2}"""
ONE_SHOT = """{"name": "One shot", "schedule_type": "FUTURE", "schedule_time": "2036-12-25T10:00:00Z", "payload": {}}"""
RIGHT_AWAY = """{"name": "Right away", "schedule_type": "IMMEDIATE", "payload": {}}"""
REPORT = """{"job_id": "daily_report", "schedule": "0 0 * * *", "command": "python generate_report.py",
 "dependencies": ["data_ingestion"], "max_retries": 3, "timeout": 3600}"""
FULL = """{"name": "Daily report", "task": "report.generate", "payload": {"region": "eu"},
 "schedule": {"cron": "0 9 * * MON-FRI", "timezone": "Europe/Berlin"},
 "queue": "default", "priority": "high", "timeout": "15m",
 "retry": {"max_attempts": 4, "backoff": "exponential", "base": "2s", "cap": "10m", "jitter": 0.1},
 "misfire": {"policy": "once", "grace": "1h"}, "overlap": "skip", "delivery": "at_least_once",
 "idempotency_key": "2026-11-15/report", "owner": "bi", "description": "...", "labels": {"team": "bi"}}"""


async def create(api: httpx.AsyncClient, text: str) -> dict[str, Any]:
    """Create a job from JSON text and return what GET shows."""
    answer = await api.post("/v1/jobs", content=text, headers=JSON)
    assert answer.status_code == 201, answer.text
    assert answer.json().keys() - {"warnings"} == {"job_id"}  # no worker offers the task
    shown = await api.get(answer.headers["location"])
    assert shown.json()["job_id"] == answer.json()["job_id"]
    return dict(shown.json())


async def test_the_short_request_with_a_job_type_and_a_time(api: httpx.AsyncClient) -> None:
    job = await create(api, EMAIL)
    assert (job["task"], job["name"], job["max_retries"]) == ("email_send", "email_send", 3)
    assert (job["schedule_type"], job["status"]) == ("FUTURE", "SCHEDULED")
    assert job["schedule_time"] == job["next_fire_at"] == "2036-12-31T23:59:59Z"
    assert job["payload"] == {"user_id": 123, "body": "..."}


async def test_the_short_request_with_a_cron_expression(api: httpx.AsyncClient) -> None:
    before = datetime.now(UTC)
    job = await create(api, CLEANUP)
    assert (job["task"], job["name"], job["max_retries"]) == ("Daily Data Cleanup", "Daily Data Cleanup", 2)
    assert (job["schedule_type"], job["cron_expression"], job["timezone"]) == ("CRON", "0 0 * * *", "UTC")
    assert job["payload"] == {"cleanup_target": "old_logs", "retention_days": 30}
    next_fire = datetime.fromisoformat(job["next_fire_at"])
    assert (next_fire.hour, next_fire.minute) == (0, 0)
    assert timedelta(0) < next_fire - before <= timedelta(days=1, minutes=1)


async def test_the_short_request_for_a_later_time(api: httpx.AsyncClient) -> None:
    job = await create(api, ONE_SHOT)
    assert (job["schedule_type"], job["schedule_time"], job["payload"]) == ("FUTURE", "2036-12-25T10:00:00Z", {})


async def test_the_short_request_for_right_away_is_a_run_at_once(api: httpx.AsyncClient) -> None:
    job = await create(api, RIGHT_AWAY)
    assert (job["schedule_type"], job["task"]) == ("IMMEDIATE", "Right away")
    [run] = (await api.get(f"/v1/jobs/{job['job_id']}/runs")).json()
    assert (run["run_id"], run["job_id"], run["status"]) == (job["job_id"], job["job_id"], "QUEUED")


async def test_the_short_request_with_dependencies_works_once_its_parent_exists(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    before = await rows(connection)
    refused = problem(await api.post("/v1/jobs", content=REPORT, headers=JSON))
    assert (refused["status"], refused["code"], refused["field"]) == (422, "unknown_job", "dependencies")
    assert await rows(connection) == before
    await api.post("/v1/jobs", json={"task": "noop", "job_id": "data_ingestion", "schedule": "@daily"})
    job = await create(api, REPORT)
    assert job["depends_on"] == ["data_ingestion"]
    assert (job["job_id"], job["task"], job["command"]) == ("daily_report", "shell", "python generate_report.py")
    assert (job["max_retries"], job["timeout"], job["cron_expression"]) == (3, 3600.0, "0 0 * * *")


async def test_the_full_request_is_kept_in_every_field(api: httpx.AsyncClient) -> None:
    job = await create(api, FULL)
    expected = {
        "name": "Daily report", "task": "report.generate", "command": None, "payload": {"region": "eu"},
        "schedule_type": "CRON", "cron_expression": "0 9 * * MON-FRI", "timezone": "Europe/Berlin",
        "schedule_time": None, "every": None, "queue": "default", "priority": "high", "timeout": 900.0,
        "retry": {"max_attempts": 4, "backoff": "exponential", "base": 2.0, "cap": 600.0, "jitter": 0.1, "rules": []},
        "max_retries": 3, "misfire": {"policy": "once", "grace": 3600.0, "cap": 100}, "overlap": "skip",
        "delivery": "at_least_once", "idempotency_key": "2026-11-15/report", "owner": "bi", "description": "...",
        "labels": {"team": "bi"}, "status": "SCHEDULED", "version": 1, "last_fired_for": None,
    }  # fmt: skip
    assert {name: job[name] for name in expected} == expected
    assert 0 <= job["shard_id"] < 128
    assert job["created_at"] == job["updated_at"]


async def test_what_executors_look_at_is_kept_in_every_field(api: httpx.AsyncClient) -> None:
    for schedule in ("now", "manual"):
        body = {
            "command": "make", "schedule": schedule, "env": {"A": "1"}, "limits": {"memory": "512MB", "cpu": "1m"},
            "sandbox": "bubblewrap", "kill_grace": "3s", "run_timeout": "1h", "required_labels": {"gpu": "yes"},
            "retry": {"rules": [{"exit_code": 2, "then": "give_up"}, {"error": "A", "then": "retry", "after": 5}]},
        }  # fmt: skip
        made = await api.post("/v1/jobs", json=body)
        job = (await api.get(made.headers["location"])).json()
        assert (job["env"], job["limits"], job["sandbox"]) == (
            {"A": "1"}, {"memory": 512_000_000, "cpu": 60.0}, "bubblewrap",
        )  # fmt: skip
        assert (job["run_timeout"], job["kill_grace"], job["required_labels"]) == (3600.0, 3.0, {"gpu": "yes"})
        assert job["retry"]["rules"] == [
            {"then": "give_up", "exit_code": [2]},
            {"then": "retry", "error": ["A"], "after": 5.0},
        ]


async def test_an_http_call_is_kept_with_its_defaults(api: httpx.AsyncClient) -> None:
    call = {"url": "https://example.com/hook", "body": {"a": 1}, "success": {"json": "$.ok", "equals": None}}
    for body in ({"http": call}, {"task": "http", "payload": call}):
        made = await api.post("/v1/jobs", json={**body, "schedule": "manual"})
        assert made.status_code == 201, made.text
        job = (await api.get(made.headers["location"])).json()
        assert (job["task"], job["http"]) == ("http", {**call, "method": "POST"})
        assert job["payload"] == body.get("payload")


async def test_a_rule_of_the_full_request_names_channels_not_addresses(api: httpx.AsyncClient) -> None:
    part = '"notify": [{"on": ["failure"], "url": "mailto://..."}]'
    refused = problem(await api.post("/v1/jobs", content=f"{FULL[:-1]}, {part}}}", headers=JSON))
    assert (refused["status"], refused["code"], refused["field"]) == (422, "unknown_field", "notify[0].url")


async def test_what_nobody_said_has_its_default(api: httpx.AsyncClient) -> None:
    for schedule in ("now", "@hourly", {"at": "2099-01-01T00:00:00Z"}, {"every": "10m"}, "manual"):
        made = await api.post("/v1/jobs", json={"task": "noop", "schedule": schedule})
        job = (await api.get(f"/v1/jobs/{made.json()['job_id']}")).json()
        assert job["max_retries"] == 3
        assert job["retry"] == {
            "max_attempts": 4, "backoff": "exponential", "base": 2.0, "cap": 600.0, "jitter": 0.1, "rules": [],
        }  # fmt: skip
        assert (job["http"], job["env"], job["limits"], job["sandbox"]) == (None, {}, None, None)
        assert (job["run_timeout"], job["kill_grace"], job["required_labels"]) == (None, None, {})
        assert (job["timeout"], job["overlap"], job["delivery"]) == (3600.0, "skip", "at_least_once")
        assert job["misfire"]["policy"] == "once" and job["misfire"]["grace"] is None
        assert (job["queue"], job["priority"], job["labels"]) == ("default", "normal", {})
        assert job["timezone"] == ("UTC" if schedule == "@hourly" else None)
        assert job["name"] == "noop"


async def test_a_time_without_a_zone_is_refused_with_the_hint_to_add_one(api: httpx.AsyncClient) -> None:
    refused = problem(await api.post("/v1/jobs", json={"task": "noop", "schedule_time": "2026-12-31T23:59:59"}))
    assert (refused["status"], refused["code"], refused["field"]) == (422, "missing_timezone", "schedule_time")
    assert "2026-12-31T23:59:59Z" in refused["hint"]


async def test_ids_of_ours_are_uuid7_and_rise(api: httpx.AsyncClient) -> None:
    ids = [(await api.post("/v1/jobs", json={"task": "noop"})).json()["job_id"] for _ in range(3)]
    batch = (await api.post("/v1/jobs:batch", json=[{"task": "noop"}] * 3)).json()["job_ids"]
    assert {UUID(job_id).version for job_id in ids + batch} == {7}
    assert len(set(ids + batch)) == 6
    assert batch == sorted(batch)
    created = datetime.fromtimestamp((UUID(ids[0]).int >> 80) / 1000, UTC)
    assert abs(created - datetime.now(UTC)) < timedelta(minutes=1)


async def test_a_name_is_a_title_and_need_not_be_unique(api: httpx.AsyncClient) -> None:
    made = [await api.post("/v1/jobs", json={"name": "Twins", "task": "noop", "schedule": "@daily"}) for _ in range(2)]
    assert [answer.status_code for answer in made] == [201, 201]
    assert made[0].json() != made[1].json()
