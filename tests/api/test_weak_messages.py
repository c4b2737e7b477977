"""Each mistake is answered with what to write instead, and not with the words of a decoder alone."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.api.bookkeeping import problem

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("body", "field", "hint"),
    [
        ({"rate_limit": 5}, "rate_limit", '"100/m"'),
        ({"concurrency": "1"}, "concurrency", '{"limit": 1, "key": "payload.account"}'),
        ({"retry": 3}, "retry", '{"max_attempts": 5}'),
        ({"retry": {"max_attempts": "3"}}, "retry.max_attempts", "without quotes"),
        ({"retry": {"delay": 5}}, "retry.delay", "did you mean 'base'?"),
        ({"retry": {"max_delay": "5m"}}, "retry.max_delay", "did you mean 'cap'?"),
        ({"retry": {"backoff": "fixed"}}, "retry.backoff", "did you mean 'constant'?"),
        ({"max_attempts": 3}, "max_attempts", "did you mean 'retry.max_attempts'?"),
        ({"unique": ["order"]}, "unique", '{"by": ["payload.account"]}'),
        ({"circuit_breaker": 5}, "circuit_breaker", '{"failures": 5}'),
        ({"misfire": "skip"}, "misfire", '{"policy": "once"}'),
        ({"schedule": 5}, "schedule", '{"every": "15m"}'),
        ({"labels": ["a"]}, "labels", '{"team": "billing"}'),
        ({"labels": {"a": 1}}, "labels[...]", "with quotes"),
        ({"env": "A=b"}, "env", '{"REGION": "eu"}'),
        ({"limits": "1GB"}, "limits", '{"memory": "512MB"}'),
        ({"timeout": True}, "timeout", '"90s"'),
        ({"http": "https://example.com"}, "http", '{"url": "https://example.com/hook"'),
        ({"sql": "select 1"}, "sql", '"statement"'),
        ({"schedule_type": "CRON"}, "cron_expression", '"0 9 * * MON-FRI"'),
        ({"timezone": "Berlin", "cron": "@daily"}, "timezone", "did you mean 'Europe/Berlin'?"),
        ({"timezone": "Europe/Berln", "cron": "@daily"}, "timezone", "did you mean 'Europe/Berlin'?"),
        ({"timezone": "CEST", "cron": "@daily"}, "timezone", 'name a place, such as "Europe/Berlin"'),
        ({"priority": "hihg"}, "priority", "did you mean 'high'?"),
        ({"command": "x", "task": "shell", "env": {"A": {"$secrt": "db"}}}, "env[...].$secrt", 'write {"$secret":'),
        ({"schedule": "every 5 minutes"}, "schedule", 'use "every": "5m" instead of cron'),
        ({"cron": "15m"}, "cron", 'use "every": "15m" instead of cron'),
        ({"schedule_time": 1795043352}, "schedule_time", '"2026-12-31T23:59:59Z"'),
        ({"args": ["a"]}, "args", "did you mean 'payload'?"),
        ({"kwargs": {"a": 1}}, "kwargs", "did you mean 'payload'?"),
        ({"run_at": "2030-01-01T00:00:00Z"}, "run_at", "did you mean 'schedule.at'?"),
        ({"countdown": 5}, "countdown", "did you mean 'delay'?"),
        ({"tags": {"a": "b"}}, "tags", "did you mean 'labels'?"),
        ({"shell": True}, "shell", "did you mean 'command'?"),
        ({"schedule": {"cron": "@daily", "tz": "UTC"}}, "schedule.tz", "did you mean 'timezone'?"),
        ({"schedule": {"interval": "5m"}}, "schedule.interval", "did you mean 'every'?"),
        ({"payload": '{"name": "a"}'}, "payload", "write the object itself"),
        ({"unique": True}, "unique", '{"by": ["payload.account"]}'),
        ({"depends_on": "extract"}, "depends_on", '["extract"]'),
        ({"notify": "me@example.com"}, "notify", '[{"on": ["failure"], "to": ["oncall"]}]'),
        ({"queue": ""}, "queue", "leave the field out"),
        ({"job_id": ""}, "job_id", "leave the field out"),
        ({"http": {"url": "https://x.example", "headers": ["A: b"]}}, "http.headers", 'such as {"Accept":'),
        ({"timezone": "Europe/Berlin"}, "timezone", "or give wall times: cron"),
        ({"cron": "@dayly"}, "cron", "did you mean '@daily'?"),
        ({"notify": [{"on": ["failure"], "url": "mailto://x"}]}, "notify[0].url", 'write "to": ["oncall"]'),
    ],
)
async def test_a_field_of_a_job(api: httpx.AsyncClient, body: dict[str, Any], field: str, hint: str) -> None:
    refused = problem(await api.post("/v1/jobs", json={"task": "pack", **body}))
    assert (refused["status"], refused["field"]) == (422, field)
    assert hint in refused["hint"], refused


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"task": 5}, "Expected a text, got a whole number"),
        ({"retries": "3"}, "Expected a whole number, got a text"),
        ({"retry": []}, "Expected an object, got a list"),
        ({"depends_on": "a"}, "Expected a list, got a text"),
        ({"job_id": "x" * 300}, "Expected a text of at most 200 characters"),
        ({"concurrency": "1"}, "Expected true or false, a whole number, an object or a list, got a text"),
    ],
)
async def test_a_value_of_another_type_is_told_in_words(
    api: httpx.AsyncClient, body: dict[str, Any], detail: str
) -> None:
    refused = problem(await api.post("/v1/jobs", json={"task": "pack", **body}))
    assert (refused["status"], refused["detail"]) == (422, detail)


async def test_one_job_and_many_jobs_are_told_apart(api: httpx.AsyncClient) -> None:
    one = problem(await api.post("/v1/jobs", json=[{"task": "pack"}]))
    assert "a list of jobs to jobs:batch" in one["hint"]
    many = problem(await api.post("/v1/jobs:batch", json={"task": "pack"}))
    assert many["hint"] == 'write {"jobs": [...]}, or send one job to POST /v1/jobs'


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/v1/job", "did you mean /v1/jobs?"),
        ("/v1/runs/01a1ee84-286c-7000-9d83-bac669dfd538/log", "did you mean /v1/runs/{run_id}/logs?"),
        ("/v1/workflow", "did you mean /v1/workflows?"),
        ("/v1/notifications/channels/oncall", "did you mean /v1/channels/{name}?"),
        ("/something/else", "GET /schema/openapi.json lists every route"),
        ("/v1/" + "x" * 5000, "GET /schema/openapi.json lists every route"),
    ],
)
async def test_a_path_that_is_not_there(api: httpx.AsyncClient, path: str, hint: str) -> None:
    assert hint in problem(await api.get(path))["hint"]


async def test_a_state_that_is_not_there(api: httpx.AsyncClient) -> None:
    assert problem(await api.get("/v1/runs?status=sucess"))["hint"] == "did you mean 'SUCCESS'?"
    assert problem(await api.get("/v1/jobs?status=pausd"))["hint"] == "did you mean 'PAUSED'?"
    assert problem(await api.get("/v1/jobs?latest_run=faild"))["hint"] == "did you mean 'FAILED'?"


async def test_a_token_that_is_not_valid(api: httpx.AsyncClient) -> None:
    refused = problem(await api.get("/v1/jobs", headers={"Authorization": "Bearer ms_x"}))
    assert refused["code"] == "invalid_token" and "expired" in refused["hint"]


async def test_other_parts_of_a_request(api: httpx.AsyncClient) -> None:
    for limit, said in (("0", "at least 1"), ("5000", "at most 1000"), ("many", "a whole number")):
        assert problem(await api.get(f"/v1/jobs?limit={limit}"))["detail"] == f"limit: expected {said}"
    assert problem(await api.get("/v1/logs?text="))["detail"] == "text: is empty; give it, or leave it out"
    role = problem(await api.post("/v1/tokens", json={"name": "web", "role": "wroker"}))
    assert role["hint"] == "did you mean 'worker'?"
    day = problem(await api.put("/v1/calendars/x", json={"weekdays": ["MONDAY"]}))
    assert (day["field"], day["hint"]) == ("weekdays[0]", "did you mean MON?")
    for country in ("GER", "Germany"):
        unknown = problem(await api.put("/v1/calendars/x", json={"holidays": [{"country": country}]}))
        assert unknown["hint"] == "did you mean 'DE'?"
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    kind = problem(await api.post("/v1/jobs", content="task=pack", headers=form))
    assert kind["hint"] == "send the header Content-Type: application/json"


async def test_a_secret_in_a_payload_stands_for_nothing_and_the_answer_says_so(api: httpx.AsyncClient) -> None:
    warning = 'payload.rows[1].password: {"$secret": ...} stands for nothing in a payload'
    for value in ({"$secret": "db"}, {"$secret": 5}):
        body = {"task": "pack", "payload": {"rows": [1, {"password": value}]}}
        for path, sent in (
            ("jobs", body), ("jobs", {**body, "cron": "@daily"}),
            ("jobs:validate", body), ("jobs:batch", {"jobs": [body]}),
        ):  # fmt: skip
            answer = (await api.post(f"/v1/{path}", json=sent)).json()
            assert answer["warnings"][0].startswith(warning), (path, answer)
    daily = {"task": "pack", "cron": "@daily", "job_id": "daily-pack"}
    assert (await api.post("/v1/jobs", json=daily)).status_code == 201
    changed = (await api.patch("/v1/jobs/daily-pack", json={"payload": {"password": {"$secret": "db"}}})).json()
    assert changed["warnings"][0].startswith("payload.password: ")


@pytest.mark.parametrize(
    ("chosen", "field", "hint"),
    [
        ({"kind": "jbo"}, "kind", "did you mean 'job'?"),
        ({"operation": "queue.pause"}, "operation", "did you mean 'queues.pause'?"),
    ],
)
async def test_the_audit_has_no_such_entries(
    api: httpx.AsyncClient, chosen: dict[str, str], field: str, hint: str
) -> None:
    refused = problem(await api.get("/v1/audit", params=chosen))
    assert (refused["status"], refused["field"], refused["hint"]) == (422, field, hint)
    for operation in ("queues.pause", "workers.lost", "breakers.open"):
        assert (await api.get("/v1/audit", params={"operation": operation})).json()["entries"] == []
