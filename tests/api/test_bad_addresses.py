"""FEATURES 1.4: unknown parameters, cursors, routes and methods are refused with a problem document."""

from __future__ import annotations

import base64

import httpx
import pytest

from tests.api.bookkeeping import problem

pytestmark = pytest.mark.anyio


def cursor(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


LISTS = ("/v1/jobs", "/v1/runs", "/v1/dead-letters", "/v1/jobs/j/runs")
CURSORS = (
    "", "x", "!!!!", "ä", "a" * 5000, cursor(""), cursor("nonsense"), cursor("2026-13-01 x"), cursor("j"),
    cursor("0001-01-01T00:00:00+14:00 x"), cursor("9999-12-31T23:59:59-14:00 x"),
    cursor("2026-11-15T00:00:00+00:00 a\0"), cursor("01a1dd6d-c346-7000-a597"), base64.b64encode(b"\xff\xfe").decode(),
)  # fmt: skip
PARAMETERS = [
    *((f"{url}?limit={value}", "limit") for url in LISTS for value in ("0", "-1", "1001", "x", "1.5", "", "9" * 30)),
    *((f"/v1/jobs/j/upcoming?n={value}", "n") for value in ("0", "-1", "1001", "many")),
    ("/v1/jobs/j/missed?limit=0", "limit"),
    *((f"/v1/jobs?{name}=%00", name) for name in ("q", "owner", "queue", "label", "status", "cursor")),
    *((f"/v1/runs?{name}=a%00b", name) for name in ("job", "queue", "task", "error", "since")),
    *((f"/v1/dead-letters?{name}=a%00b", name) for name in ("job", "queue", "task", "error", "since")),
]
MEANINGS = [
    ("/v1/jobs?status=sleeping", "invalid_input", "status"),
    ("/v1/jobs?status=success", "invalid_input", "status"),
    ("/v1/jobs?status=paused,nope", "invalid_input", "status"),
    ("/v1/runs?status=paused", "invalid_input", "status"),
    ("/v1/runs?status=pendin", "invalid_input", "status"),
    ("/v1/jobs?label=team", "invalid_input", "label"),
    ("/v1/jobs?label=:x", "invalid_input", "label"),
    ("/v1/runs?since=yesterday", "invalid_time", "since"),
    ("/v1/runs?until=2026-12-31T00:00:00", "missing_timezone", "until"),
    ("/v1/runs?since=9999-12-31T23:59:59Z", "invalid_time", "since"),
    ("/v1/runs?since=0001-01-01T00:00:00Z", "invalid_time", "since"),
    ("/v1/dead-letters?until=2026-12-31T00:00:00", "missing_timezone", "until"),
]
NOWHERE = [
    ("GET", "/"), ("GET", "/v1"), ("GET", "/v2/jobs"), ("GET", "/v1/job"),
    ("GET", "/v1/event"), ("POST", "/v1/runs/x:explode"), ("POST", "/v1/jobs/j:explode"), ("GET", "/v1/runs/x/who"),
    ("GET", "/" + "x" * 5000), ("GET", "/v1/%2e%2e/secret"),
]  # fmt: skip
WRONG_METHODS = [
    ("PUT", "/v1/jobs", "GET, POST"), ("DELETE", "/v1/jobs", "GET, POST"), ("GET", "/v1/jobs:batch", "POST"),
    ("DELETE", "/v1/runs", "GET"), ("PATCH", "/v1/workers", "GET"), ("GET", "/v1/exchange", "POST"),
    ("POST", "/healthz", "GET"), ("PUT", "/v1/jobs/j/status", "GET"),
]  # fmt: skip


UNKNOWN_PARAMETERS = [
    ("GET", "/v1/jobs?statsu=paused", "statsu", "did you mean 'status'?"),
    ("GET", "/jobs?label=a:b&Queue=x", "Queue", "did you mean 'queue'?"),
    ("GET", "/v1/runs?jobs=j", "jobs", "did you mean 'job'?"),
    ("GET", "/v1/dead-letters?erorr=x", "erorr", "did you mean 'error'?"),
    ("GET", "/v1/jobs/j/runs?n=1", "n", "known are: cursor, limit, generation, view"),
    ("GET", "/v1/jobs/j?job_id=k", "job_id", "known are: generation"),
    ("PATCH", "/v1/jobs/j?if_match=1", "if_match", "this route takes no parameters"),
    ("POST", "/v1/jobs?dry_run=1", "dry_run", "this route takes no parameters"),
    ("POST", "/v1/dead-letters:discard?job=x", "job", "this route takes no parameters"),
    ("GET", "/v1/runs/0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11/logs?folow=true", "folow", "did you mean 'follow'?"),
    ("GET", "/v1/workers?" + "x" * 3000 + "=", "x" * 100, "this route takes no parameters"),
]


@pytest.fixture
async def some_job(api: httpx.AsyncClient) -> None:
    assert (await api.post("/v1/jobs", json={"job_id": "j", "task": "noop", "schedule": "@daily"})).is_success


async def test_a_parameter_of_the_wrong_kind_is_named(api: httpx.AsyncClient, some_job: None) -> None:
    for url, field in PARAMETERS:
        refused = problem(await api.get(url))
        assert refused["status"] in (400, 422), url
        assert (refused["code"], refused["field"]) == ("invalid_parameter", field), url


async def test_a_parameter_that_means_nothing_is_named(api: httpx.AsyncClient, some_job: None) -> None:
    for url, code, field in MEANINGS:
        refused = problem(await api.get(url))
        assert (refused["status"], refused["code"], refused["field"]) == (422, code, field), url
        assert refused.get("expected") or refused.get("hint"), url


async def test_a_cursor_that_is_not_ours_is_refused(api: httpx.AsyncClient, some_job: None) -> None:
    for url in LISTS:
        for wrong in CURSORS:
            refused = problem(await api.get(url, params={"cursor": wrong}))
            assert (refused["status"], refused["code"], refused["field"]) in (
                (422, "invalid_input", "cursor"),
                (400, "invalid_parameter", "cursor"),
            ), (url, wrong)
            assert "Link" in refused["hint"]


async def test_a_route_that_is_not_there_is_404_with_the_way_to_those_that_are(
    api: httpx.AsyncClient, some_job: None
) -> None:
    for method, url in NOWHERE:
        refused = problem(await api.request(method, url))
        assert (refused["status"], refused["code"]) == (404, "no_such_route"), url
        assert refused["hint"]


async def test_a_wrong_method_is_405_and_says_which_are_right(api: httpx.AsyncClient, some_job: None) -> None:
    for method, url, allowed in WRONG_METHODS:
        answer = await api.request(method, url)
        refused = problem(answer)
        assert (refused["status"], refused["code"]) == (405, "method_not_allowed"), url
        assert set(allowed.split(", ")) <= set(answer.headers["allow"].split(", ")), url


async def test_odd_bytes_in_an_address_never_break_anything(api: httpx.AsyncClient, some_job: None) -> None:
    for odd in ("%ff", "%ed%a0%80", "%F0%9F%98%80", "%", "%zz", "%25", "+", "a;b", "'", "%22", "*", "%0a", "%c0%80"):
        for url in (f"/v1/jobs/{odd}", f"/v1/jobs?q={odd}", f"/v1/jobs?{odd}=1", f"/v1/runs?error={odd}&job={odd}"):
            assert (await api.get(url)).status_code < 500, url
        assert (await api.post(f"/v1/jobs/{odd}:runNow")).status_code < 500
        assert (await api.delete(f"/v1/jobs/{odd}")).status_code < 500


async def test_a_parameter_that_a_route_does_not_have_is_refused_with_the_nearest_it_has(
    api: httpx.AsyncClient, some_job: None
) -> None:
    for method, url, name, hint in UNKNOWN_PARAMETERS:
        refused = problem(await api.request(method, url))
        assert (refused["status"], refused["code"]) == (422, "unknown_parameter"), url
        assert (refused["field"], refused["hint"]) == (name, hint), url
    assert (await api.get("/v1/jobs?status=paused&limit=5&q=")).status_code == 200
    assert (await api.get("/schema/openapi.json?v=1")).status_code == 200
    assert (await api.get("/healthz?at=now")).status_code == 200
