"""Every path says which methods it has: Allow of a 405 and of OPTIONS. HEAD is answered wherever GET is."""

from __future__ import annotations

import re

import httpx
import pytest

from mainspring.api.handlers import routed_handlers
from mainspring.api.routing import public_path
from mainspring.roles.assembly import Assembly

from .bookkeeping import problem

pytestmark = pytest.mark.anyio

METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}


def paths_and_methods(assembly: Assembly) -> dict[str, set[str]]:
    """Every path that is served, verbs in both forms, with its methods."""
    found: dict[str, set[str]] = {}
    for route, handler in routed_handlers(assembly.app):
        for path in {route.path, public_path(route, handler)}:
            methods = found.setdefault(re.sub(r"\{\w+\}", "x", path), {"OPTIONS"})
            methods |= {"GET", "HEAD"} if handler.method == "GET" else {handler.method}
    return found


async def test_a_wrong_method_is_405_with_all_right_ones_on_every_path(
    api: httpx.AsyncClient, assembly: Assembly
) -> None:
    paths = paths_and_methods(assembly)
    assert len(paths) > 60
    for path, methods in paths.items():
        for method in METHODS - methods:
            answer = await api.request(method, path)
            assert answer.status_code == 405, (method, path)
            assert set(answer.headers["allow"].split(", ")) == methods, (method, path)
            if method != "HEAD":
                assert problem(answer)["code"] == "method_not_allowed"
        answer = await api.options(path)
        assert (answer.status_code, answer.content) == (204, b""), path
        assert set(answer.headers["allow"].split(", ")) == methods, path


async def test_head_has_the_status_and_headers_of_get_and_no_body(api: httpx.AsyncClient) -> None:
    await api.post("/v1/jobs", json={"job_id": "j", "task": "noop", "schedule": "@daily"})
    run_id = (await api.post("/v1/jobs", json={"task": "noop"})).json()["job_id"]
    for path in (
        "/healthz", "/v1/jobs", "/v1/jobs/j", "/v1/jobs/absent", "/v1/runs", f"/v1/runs/{run_id}/logs", "/v1/nothing",
        "/v1/runs?limit=x",
    ):  # fmt: skip
        got, head = await api.get(path), await api.head(path)
        assert head.status_code == got.status_code, path
        assert head.headers["content-type"] == got.headers["content-type"]
        assert head.headers.get("etag") == got.headers.get("etag")
        assert head.content == b"" or head.status_code == 404
    followed = await api.head(f"/v1/runs/{run_id}/logs?follow=true")  # which would last as long as the run
    assert (followed.headers["content-type"].partition(";")[0], followed.content) == ("text/event-stream", b"")


async def test_a_verb_is_the_same_after_a_colon_and_as_a_segment(api: httpx.AsyncClient) -> None:
    await api.post("/v1/jobs", json={"job_id": "j", "task": "noop", "schedule": "@daily"})
    for url, status in (
        ("/v1/jobs/j:pause", "PAUSED"), ("/jobs/j/resume", "SCHEDULED"), ("/v1/jobs/j/pause", "PAUSED"),
        ("/jobs/j:resume", "SCHEDULED"), ("/v1/jobs/j%3Apause", "PAUSED"),
    ):  # fmt: skip
        answer = await api.post(url)
        assert (answer.status_code, answer.json()["status"]) == (200, status), url
    for url in ("/v1/jobs/j:runNow", "/v1/jobs/j/runNow", "/v1/jobs/j:run-now", "/v1/jobs/j/run-now"):
        assert (await api.post(url)).status_code == 202


async def test_a_verb_without_a_body_refuses_one_by_name(api: httpx.AsyncClient) -> None:
    await api.post("/v1/jobs", json={"job_id": "j", "task": "noop", "schedule": "@daily"})
    run_id = (await api.post("/v1/jobs", json={"task": "noop"})).json()["job_id"]
    for url in ("/v1/jobs/j:pause", "/v1/jobs/j:resume", f"/v1/runs/{run_id}:cancel"):
        refused = problem(await api.post(url, json={"payload": 1}))
        assert (refused["status"], refused["code"], refused["field"]) == (422, "unknown_field", "payload"), url
        assert problem(await api.post(url, content=b"null", headers={"Content-Type": "application/json"}))
        assert (await api.post(url, json={})).is_success


async def test_a_parameter_that_is_given_twice_is_refused(api: httpx.AsyncClient) -> None:
    for url, field in (("/v1/runs?limit=1&limit=2", "limit"), ("/v1/jobs?q=a&status=paused&q=a", "q")):
        refused = problem(await api.get(url))
        assert (refused["status"], refused["code"], refused["field"]) == (422, "invalid_parameter", field)
    assert (await api.get("/v1/jobs?status=paused&status=scheduled")).status_code == 200


async def test_null_is_no_number(api: httpx.AsyncClient) -> None:
    for url, field in (("/v1/runs?generation=null", "generation"), ("/v1/runs?limit=NULL", "limit")):
        refused = problem(await api.get(url))
        assert (refused["status"], refused["code"], refused["field"]) == (422, "invalid_parameter", field)
    assert (await api.get("/v1/jobs?q=null&owner=null")).status_code == 200
