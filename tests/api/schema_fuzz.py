"""Requests that schemathesis makes from the OpenAPI document, against the whole server in this process.

MAINSPRING_SCHEMA_EXAMPLES=500 HYPOTHESIS_PROFILE=search pytest tests/api/test_schemathesis.py looks for more.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4
from zoneinfo import available_timezones

import httpx
import msgspec
import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis.checks import (
    content_type_conformance,
    negative_data_rejection,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.generation import GenerationMode
from schemathesis.schemas import APIOperation

from mainspring.api.app import app_without_a_server
from mainspring.api.openapi.document import CODES_OF, document
from mainspring.domain.intake.cron import ALIASES
from mainspring.wire.exchange import Outcome
from tests.operations.hand_worker import HandWorker, outcome

EXAMPLES = int(os.environ.get("MAINSPRING_SCHEMA_EXAMPLES", "4"))
BASE = "http://127.0.0.1:8700"
CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance,
    response_headers_conformance,
]  # fmt: skip

_numbers = {"minute": (0, 59), "hour": (0, 23), "day": (1, 28), "month": (1, 12), "weekday": (0, 6)}


def _part(least: int, most: int) -> st.SearchStrategy[str]:
    number = st.integers(least, most).map(str)
    span = st.tuples(st.integers(least, most), st.integers(least, most)).map(lambda two: f"{min(two)}-{max(two)}")
    step = st.integers(2, max(2, most // 2)).map(lambda size: f"*/{size}")
    return st.just("*") | number | span | step | st.lists(number, min_size=2, max_size=3, unique=True).map(",".join)


crons = st.tuples(*(_part(*bounds) for bounds in _numbers.values())).map(" ".join) | st.sampled_from(sorted(ALIASES))
timespans = st.lists(
    st.tuples(st.integers(1, 90), st.sampled_from(["ms", "s", "m", "h", "d"])).map(lambda two: f"{two[0]}{two[1]}"),
    min_size=1,
    max_size=2,
).map("".join)
sizes = st.tuples(st.integers(32, 900), st.sampled_from(["MB", "MiB", "M", "GB"])).map(lambda two: f"{two[0]}{two[1]}")
FORMATS: dict[str, st.SearchStrategy[str]] = {
    "cron": crons,
    "schedule": crons | st.sampled_from(["now", "manual"]),
    "timespan": timespans,
    "size": sizes,
    "timezone": st.sampled_from(sorted(available_timezones() - {"localtime", "Factory"})),
}


def load() -> Any:
    """The document, as schemathesis reads it."""
    for name, strategy in FORMATS.items():
        schemathesis.openapi.format(name, strategy)
    raw = json.loads(msgspec.json.encode(document(app_without_a_server())))
    del raw["security"], raw["components"]["securitySchemes"]  # every request has a token; others test what has none
    return schemathesis.openapi.from_dict(raw)


def operations_by_tag(schema: Any) -> dict[str, list[APIOperation[Any, Any, Any]]]:
    found: dict[str, list[Any]] = {}
    for result in schema.get_all_operations():
        operation = result.ok()
        [tag] = operation.tags
        found.setdefault(tag, []).append(operation)
    return found


@dataclass
class Scene:
    """Ids that exist, by the name of the parameter."""

    ids: dict[str, list[str]]


async def set_up(api: httpx.AsyncClient) -> Scene:
    """Jobs of every status, runs of every state, a dead letter, a worker and a token."""

    async def job(**fields: Any) -> str:
        answer = await api.post("/v1/jobs", json={"task": "noop", **fields})
        assert answer.is_success, answer.text
        return str(answer.json()["job_id"])

    worker = HandWorker(api)
    runs = [await job(payload={"number": number}, retries=0) for number in range(4)]
    orders = {str(order.run_id): order for order in await worker.claim(4)}
    ends: list[Outcome] = [
        outcome(orders[runs[0]], "SUCCESS", result={"rows": 42}),
        outcome(orders[runs[1]], "FAILED", error="ValueError: no"),
        outcome(orders[runs[2]], "FAILED", error="OSError: away"),
    ]
    await worker.report(*ends)
    runs.append(await job(task="nobody-offers-this"))
    runs.append(await job(task="nobody-offers-this"))
    await api.post(f"/v1/runs/{runs[-1]}:cancel")
    later = (datetime.now(UTC) + timedelta(days=300)).isoformat()
    jobs = [
        await job(job_id="daily", schedule="@daily", labels={"team": "bi"}, owner="bi"),
        await job(job_id="paused", schedule="@hourly"),
        await job(job_id="gone", schedule="@hourly"),
        await job(job_id="later", schedule_time=later, http={"url": "https://example.com/x"}, task=None),
        await job(job_id="by-hand", schedule="manual", command="true", task=None, limits={"memory": "64MB"}),
    ]
    await api.post("/v1/jobs/paused:pause")
    await api.delete("/v1/jobs/gone")
    manual = (await api.post("/v1/jobs/by-hand:runNow")).json()["run_id"]
    token = (await api.post("/v1/tokens", json={"role": "worker", "name": "w"})).json()["token_id"]
    await api.post("/v1/jobs", json={"task": "limited", "schedule": "manual", "job_id": "limited", "concurrency": 2})
    [limit] = (await api.get("/v1/limits")).json()["limits"]
    await job(task="broken", schedule="manual", job_id="broken", circuit_breaker=True)
    [breaker] = (await api.get("/v1/breakers")).json()["breakers"]
    past = {"from": "2025-03-01T00:00:00Z", "to": "2025-04-01T00:00:00Z"}
    backfills = [(await api.post("/v1/jobs/daily:backfill", json=past)).json()["id"] for _ in range(2)]
    act = {"verb": "pause", "ids": ["paused"]}
    operations = [(await api.post("/v1/jobs:act", json=act)).json()["id"] for _ in range(2)]
    steps = [{"name": "a", "command": "true"}, {"name": "b", "command": "true", "depends_on": ["a"]}]
    await api.post("/v1/workflows", json={"workflow_id": "weekly", "steps": steps, "schedule": "@weekly"})
    workflow_run = (await api.post("/v1/workflows/weekly:runNow")).json()["run_id"]
    channel = {"kind": "webhook", "url": "https://example.com/hook", "secret": "a secret of the channel"}
    for name in ("default", "oncall", "boss"):
        await api.put(f"/v1/channels/{name}", json=channel)
    await api.put("/v1/rules/default", json={"on": ["failure"], "to": ["default"]})
    message = (await api.post("/v1/channels/default:test")).json()["notification_id"]
    await api.post("/v1/tenants", json={"name": "acme"})
    person = {"mail": "ada@example.com", "name": "Ada", "role": "viewer"}
    user = (await api.post("/v1/users", json=person)).json()["user_id"]
    await api.post("/v1/events", json={"name": "order.paid", "id": "evt-1", "payload": {"total": 120}})
    return Scene(
        {
            "user": [user, person["mail"]],
            "tenant": ["default"],
            "notification_id": [message],
            "workflow_id": ["weekly", "daily"],
            "backfill_id": backfills,
            "operation_id": operations,
            "limit_id": [str(limit["limit_id"])],
            "breaker_id": [str(breaker["breaker_id"])],
            "job_id": [*jobs, *runs],
            "run_id": [*runs, manual, workflow_run],
            "worker_id": [str(worker.worker_id)],
            "token_id": [token],
            "session_id": [str(uuid4())],  # a client with a token has none
            "name": ["default"],
            "application": ["billing"],
            "fingerprint": ["other"],
            "event_id": ["evt-1"],
            "token": ["no-callback"],
        }
    )


# Fields of a job of which a request may have one.
RIVALS = (
    ("schedule", "schedule_time", "cron_expression", "cron", "delay"), ("task", "job_type", "command", "http"),
    ("retries", "max_retries", "retry", "retry_policy"),
)  # fmt: skip


def sensible(body: dict[str, Any]) -> dict[str, Any]:
    """The body of a job without fields that contradict each other. Most random ones would only be refused."""
    for names in RIVALS:
        given = [name for name in names if body.get(name) is not None]
        for name in given[1:]:
            del body[name]
    for name in ("schedule_type", "timezone"):
        body.pop(name, None)
    if "http" in body:
        for name in ("env", "limits", "sandbox", "run_as", "kill_grace", "payload"):
            body.pop(name, None)
    elif not any(body.get(name) for name in RIVALS[1]):
        body["task"] = "noop"
    return body


@dataclass
class Asked:
    """A request, and which of the things that exist it is about. None: that which its path names."""

    case: Any
    chosen: int | None


def requests_of(operations: list[Any], mode: GenerationMode) -> st.SearchStrategy[Asked]:
    """Requests that the document allows, or does not allow. Most of the former are about things that exist."""
    chosen = st.integers(0, 20) | st.integers(0, 20) | st.none() if mode is GenerationMode.POSITIVE else st.none()
    return st.one_of(
        [st.builds(Asked, operation.as_strategy(generation_mode=mode), chosen) for operation in operations]
    )


async def send(api: httpx.AsyncClient, scene: Scene, asked: Asked) -> httpx.Response | None:
    """The answer. None if the request would last as long as a run, or for ever."""
    case = asked.case
    if case.operation.path == "/v1/stream":
        return None
    if str((case.query or {}).get("follow", "")).lower() in ("true", "1"):
        return None
    if asked.chosen is not None:
        for name in case.path_parameters or {}:
            known = scene.ids[name]
            case.path_parameters[name] = known[asked.chosen % len(known)]
        (case.query or {}).pop("cursor", None)  # a random one is only refused
        if case.operation.definition.raw["operationId"] in ("createJob", "patchJob") and isinstance(case.body, dict):
            case.body = sensible(case.body)
    prepared = requests.Request(**_request_fields(case)).prepare()
    headers = {name: value for name, value in prepared.headers.items() if name.lower() != "content-length"}
    assert prepared.method and prepared.url
    request = api.build_request(prepared.method, prepared.url, content=prepared.body or b"", headers=headers)
    return await api.send(request)


def _request_fields(case: Any) -> dict[str, Any]:
    known = ("method", "url", "headers", "params", "data", "json", "cookies", "files")
    return {name: value for name, value in case.as_transport_kwargs(base_url=BASE).items() if name in known}


def _is_refusal(case: Any, answer: httpx.Response) -> bool:
    """One that the check does not take for a refusal: 412, 413, and an explanation that says what is wrong."""
    explains = case.operation.definition.raw["operationId"] == "explainSchedule" and answer.status_code == 200
    return answer.status_code in (412, 413) or (explains and not answer.json()["valid"])


def check(case: Any, answer: httpx.Response, mode: GenerationMode) -> None:
    """Raise unless the answer is one that the document shows for this request."""
    checks = list(CHECKS)
    if mode is GenerationMode.NEGATIVE and not _is_refusal(case, answer):
        checks.append(negative_data_rejection)
    if case.path == "/readyz":  # this server has no loops, so it is not ready
        checks.remove(not_a_server_error)
    try:
        case.validate_response(answer, checks=checks)
    except BaseExceptionGroup as failures:  # not an Exception: it would end the event loop
        raise AssertionError("\n".join(map(str, failures.exceptions)) + f"\n{case.as_curl_command()}") from None
    if answer.headers.get("content-type") == "application/problem+json":
        shown = case.operation.definition.raw["responses"][str(answer.status_code)][CODES_OF]
        assert answer.json()["code"] in shown, (case.as_curl_command(), answer.text)


def examples_of(operation: Any) -> Iterator[Any]:
    """The bodies that the document gives as examples."""
    body = operation.definition.raw.get("requestBody", {"content": {}})
    for content in body["content"].values():
        for example in content["examples"].values():
            yield example["value"]


def path_of(operation: Any, scene: Scene) -> str:
    """The path of an operation about the first thing that exists."""
    path: str = operation.path
    for name, known in scene.ids.items():
        path = path.replace(f"{{{name}}}", known[0])
    return path
