"""/v1/workflows: definitions over HTTP, what is refused, and that nothing is stored then."""

from __future__ import annotations

from typing import Any

import asyncpg
import httpx
import pytest

from tests.api.bookkeeping import problem

pytestmark = pytest.mark.anyio


def refused_as(answer: httpx.Response, status: int, code: str, field: str | None = None) -> None:
    document = problem(answer)
    assert (answer.status_code, document["code"], document.get("field")) == (status, code, field)


STEPS: list[dict[str, Any]] = [
    {"name": "extract", "task": "etl.extract", "payload": {"region": {"$parameter": "region"}}},
    {"name": "load", "task": "etl.load", "depends_on": ["extract"], "payload": {"rows": {"$from": "extract"}}},
    {"name": "report", "command": "make report", "depends_on": ["load"], "rule": "all_done", "retries": 1},
]
NIGHTLY = {
    "workflow_id": "nightly", "schedule": {"cron": "0 2 * * *", "timezone": "Europe/Berlin"}, "timeout": "2h",
    "parameters": {"region": "eu"}, "steps": STEPS, "labels": {"team": "bi"},
}  # fmt: skip


async def test_a_workflow_is_shown_as_it_was_given_and_is_a_job(api: httpx.AsyncClient) -> None:
    created = await api.post("/v1/workflows", json=NIGHTLY)
    assert (created.status_code, created.json()["workflow_id"]) == (201, "nightly")
    assert created.headers["location"] == "/v1/workflows/nightly"
    shown = await api.get("/v1/workflows/nightly")
    view = shown.json()
    assert view["steps"] == STEPS
    assert (view["step_count"], view["definition_version"], view["parameters"]) == (3, 1, {"region": "eu"})
    assert (view["timeout"], view["schedule"], view["status"]) == (7200, "0 2 * * * (Europe/Berlin)", "SCHEDULED")
    assert shown.headers["etag"] == '"1"'
    job = (await api.get("/v1/jobs/nightly")).json()
    assert (job["task"], job["workflow_version"], job["payload"]) == ("mainspring.workflow", 1, {"region": "eu"})
    assert len((await api.get("/v1/jobs/nightly/upcoming")).json()["fires"]) == 20

    await api.post("/v1/jobs", json={"job_id": "plain", "task": "t", "schedule": "manual"})
    listed = (await api.get("/v1/workflows")).json()["workflows"]
    assert [(one["workflow_id"], one["step_count"], one["steps"]) for one in listed] == [("nightly", 3, [])]
    assert (await api.get("/v1/workflows?q=nothing")).json()["workflows"] == []
    refused_as(await api.get("/v1/workflows/plain"), 404, "not_found")
    refused_as(await api.post("/v1/workflows", json=NIGHTLY), 409, "job_exists", "workflow_id")


async def test_a_change_makes_a_new_version_of_the_definition(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await api.post("/v1/workflows", json=NIGHTLY)
    changed = await api.patch("/v1/workflows/nightly", json={"description": "every night", "misfire": "all"})
    assert (changed.json()["definition_version"], changed.json()["version"]) == (1, 2)
    mended = [*STEPS[:2], {**STEPS[2], "command": "make all"}]
    changed = await api.put("/v1/workflows/nightly", json={"steps": mended}, headers={"If-Match": '"2"'})
    assert changed.status_code == 200, changed.text
    view = changed.json()
    assert (view["definition_version"], view["version"], view["steps"]) == (2, 3, mended)
    assert (view["description"], view["misfire"]["policy"], view["parameters"]) == (
        "every night",
        "all",
        {"region": "eu"},
    )
    refused_as(
        await api.put("/v1/workflows/nightly", json={"steps": STEPS}, headers={"If-Match": '"2"'}),
        412, "version_mismatch", "If-Match",
    )  # fmt: skip
    refused_as(await api.patch("/v1/workflows/nightly", json={}), 422, "invalid_input", "$")
    # The steps refer to a parameter that would be gone.
    refused = await api.patch("/v1/workflows/nightly", json={"parameters": {"zone": 1}})
    refused_as(refused, 422, "unknown_parameter", "steps[0].payload.region")
    refused_as(await api.patch("/v1/jobs/nightly", json={"priority": "high"}), 422, "is_a_workflow", "task")
    queue = (await api.patch("/v1/workflows/nightly", json={"queue": "etl"})).json()
    assert (queue["queue"], queue["definition_version"]) == ("etl", 3)
    rows = await connection.fetch("select version, definition::text from mainspring.workflow_versions order by 1")
    assert [row["version"] for row in rows] == [1, 2, 3]
    assert [row["definition"].count('"queue":"etl"') for row in rows] == [0, 0, 3]


async def test_a_workflow_is_paused_resumed_run_and_deleted_like_a_job(api: httpx.AsyncClient) -> None:
    await api.post("/v1/workflows", json=NIGHTLY)
    assert (await api.post("/v1/workflows/nightly:pause")).json()["status"] == "PAUSED"
    assert (await api.post("/v1/workflows/nightly:resume")).json()["status"] == "SCHEDULED"
    refused = await api.post("/v1/workflows/nightly:runNow", json={"parameters": {"zone": 1}})
    refused_as(refused, 422, "unknown_parameter", "parameters.zone")
    refused = await api.post("/v1/workflows/nightly:runNow", json={"parameters": {"region": "x" * 300_000}})
    refused_as(refused, 413, "payload_too_large", "parameters")
    refused = await api.post("/v1/jobs/nightly:runNow", json={"payload": {"zone": 1}})
    refused_as(refused, 422, "unknown_parameter", "payload.zone")
    body = {"parameters": {"region": "us"}, "idempotency_key": "k"}
    ran = await api.post("/v1/workflows/nightly:runNow", json=body)
    assert ran.status_code == 202, ran.text
    assert "worker" not in (ran.json()["reason"] or ""), "a server starts it"
    again = await api.post("/v1/workflows/nightly:runNow", json=body)
    assert (again.status_code, again.json()["run_id"]) == (200, ran.json()["run_id"])
    run = (await api.get(f"/v1/runs/{ran.json()['run_id']}")).json()
    assert (run["job_id"], run["payload"]) == ("nightly", {"region": "us"})
    assert (await api.delete("/v1/workflows/nightly")).json()["status"] == "CANCELLED"
    refused_as(await api.post("/v1/workflows/other:pause"), 404, "not_found")


async def test_an_unknown_workflow_is_called_a_workflow(api: httpx.AsyncClient) -> None:
    await api.post("/v1/workflows", json=NIGHTLY)
    for path, words in (("nope", "workflow 'nope'"), ("nightly?generation=7", "of workflow 'nightly'")):
        found = problem(await api.get(f"/v1/workflows/{path}"))
        assert words in found["detail"] and "/v1/workflows" in found["hint"] and "job" not in found["hint"]


async def test_a_check_looks_at_what_the_workflow_would_fire_after(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    """As its creation does. Jobs are checked in the same way."""
    steps = [{"name": "a", "command": "x"}]
    for path, key in (("/v1/workflows:validate", "workflow_id"), ("/v1/jobs:validate", "job_id")):
        what: dict[str, Any] = {"steps": steps} if key == "workflow_id" else {"command": "x"}
        unknown = {key: "w", "schedule": {"after": ["nothing"]}, **what}
        refused_as(await api.post(path, json=unknown), 422, "unknown_job", "schedule.after")
        itself = {key: "w", "schedule": {"after": ["w"]}, **what}
        refused_as(await api.post(path, json=itself), 422, "cycle", "schedule.after")
    assert await connection.fetchval("select count(*) from mainspring.job_edges") == 0
    await api.post("/v1/workflows", json={"workflow_id": "first", "steps": steps})
    await api.post("/v1/workflows", json={"workflow_id": "then", "steps": steps, "schedule": {"after": ["first"]}})
    around = {"workflow_id": "first", "steps": steps, "schedule": {"after": ["then"]}}
    assert "first > then > first" in problem(await api.post("/v1/workflows:validate", json=around))["detail"]
    fits = {"steps": steps, "schedule": {"after": ["then"]}}
    assert (await api.post("/v1/workflows:validate", json=fits)).status_code == 200
    calendar = {"steps": steps, "schedule": {"cron": "0 2 * * *", "calendar": "none"}}
    assert problem(await api.post("/v1/workflows:validate", json=calendar))["code"] == "unknown_calendar"


async def test_the_same_request_with_a_key_creates_one_workflow(api: httpx.AsyncClient) -> None:
    body = {"steps": [{"name": "a", "command": "x"}], "idempotency_key": "once"}
    first, second = [await api.post("/v1/workflows", json=body) for _ in range(2)]
    assert (first.status_code, second.status_code, second.json()) == (201, 200, first.json())
    other = {**body, "steps": [{"name": "b", "command": "x"}]}
    refused_as(await api.post("/v1/workflows", json=other), 409, "idempotency_key_reused", "idempotency_key")
    refused_as(await api.post("/v1/jobs", json={"task": "mainspring.workflow"}), 422, "invalid_input", "task")


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"steps": [{"name": "a", "task": "t", "depends_on": ["b"]}, {"name": "b", "task": "t", "depends_on": ["a"]}]},
     "cycle", "steps[0].depends_on"),
    ({"steps": [{"name": "a", "command": "x", "depends_on": ["z"]}]}, "unknown_step", "steps[0].depends_on[0]"),
    ({"steps": [{"name": "a", "command": "x"}, {"name": "a", "command": "x"}]}, "duplicate_step", "steps[1].name"),
    ({"steps": [{"name": "a b", "command": "x"}]}, "invalid_input", "steps[0].name"),
    ({"steps": [{"name": "a", "command": "x", "schedule": "@daily"}]}, "unknown_field", "steps[0].schedule"),
    ({"steps": [{"name": "a", "command": "x", "map": {"ower": []}}]}, "unknown_field", "steps[0].map.ower"),
    ({"steps": []}, "invalid_input", "steps"),
    ({"workflow_id": "w"}, "invalid_input", "steps"),
    ({"steps": [{"name": "a", "command": "x", "payload": {"rows": {"$from": "b"}}}, {"name": "b", "command": "x"}]},
     "not_upstream", "steps[0].payload.rows"),
    ({"steps": [{"name": str(number), "command": "x"} for number in range(100_001)]}, "invalid_input", "steps"),
    ({"steps": [*({"name": str(number), "command": "x"} for number in range(20_001)), {"name": 7}]},
     "invalid_input", "steps[20001].name"),
]  # fmt: skip


async def test_bad_input_is_refused_by_its_field_and_nothing_is_stored(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    for body, code, field in BAD:
        answer = await api.post("/v1/workflows", json={"workflow_id": "bad", **body})
        refused_as(answer, 422, code, field)
        if code == "cycle":
            assert "a > b > a" in answer.json()["detail"]
    for table in ("jobs", "taken_ids", "workflow_versions", "runs"):
        assert not await connection.fetchval(f"select count(*) from mainspring.{table}"), table


async def test_a_definition_is_checked_without_being_stored(api: httpx.AsyncClient) -> None:
    answer = await api.post("/v1/workflows:validate", json=NIGHTLY)
    checked = answer.json()
    checked.pop("warnings")  # no worker offers the tasks
    assert checked == {"steps": 3, "edges": 2, "layers": 3, "first": ["extract"], "last": ["report"]}
    refused_as(await api.get("/v1/workflows/nightly"), 404, "not_found")


async def test_a_large_workflow_is_decoded_in_slices_and_shown(api: httpx.AsyncClient) -> None:
    chain = [
        {"name": f"s{number}", "command": "true", "description": "x" * 800, "depends_on": [f"s{number - 1}"]}
        for number in range(1500)
    ]
    del chain[0]["depends_on"]
    created = await api.post("/v1/workflows", json={"workflow_id": "chain", "steps": chain})
    assert created.status_code == 201, created.text
    assert (await api.get("/v1/workflows/chain")).json()["steps"] == chain
    changed = await api.patch("/v1/workflows/chain", json={"steps": [*chain, {"name": "last", "command": "x"}]})
    assert (changed.json()["step_count"], changed.json()["definition_version"]) == (1501, 2)


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        ({"steps": [{"name": "extract"}, {"name": "b", "depends_on": ["extrat"]}]}, "did you mean 'extract'?"),
        ({"steps": [{"name": "a"}, {"name": "b", "depends_on": "a"}]}, 'such as ["extract"]'),
        ({"steps": ["a", "b"]}, 'a step is such as {"name": "first", "command": "echo hello"}'),
        ({"steps": [{"name": "a"}, {"name": "b", "after": ["a"]}]}, "did you mean 'depends_on'?"),
        ({"steps": [{"name": "a", "payload": {"x": {"$from": "a"}}}]}, "refer to a step before it"),
        ({"id": "w", "steps": [{"name": "a"}]}, "did you mean 'workflow_id'?"),
        (
            {"steps": [{"name": "a", "payload": {"x": {"$parameter": "regoin"}}}], "parameters": {"region": 1}},
            "did you mean 'region'?",
        ),
    ],
)
async def test_a_hint_names_what_was_meant(api: httpx.AsyncClient, body: dict[str, Any], hint: str) -> None:
    refused = await api.post("/v1/workflows", json=body)
    assert (refused.status_code, refused.json()["hint"]) == (422, hint)
