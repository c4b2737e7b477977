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
    ],
)
async def test_a_field_of_a_job(api: httpx.AsyncClient, body: dict[str, Any], field: str, hint: str) -> None:
    refused = problem(await api.post("/v1/jobs", json={"task": "pack", **body}))
    assert (refused["status"], refused["field"]) == (422, field)
    assert hint in refused["hint"], refused


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
