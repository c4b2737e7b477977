"""FEATURES 8.6: OpenAPI 3.1 at /schema/openapi.json, with every route and every request body."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from mainspring.wire.jobs import JobPatch, JobRequest

pytestmark = pytest.mark.anyio

ROUTES = {
    "/v1/jobs": {"get", "post"},
    "/v1/jobs:batch": {"post"},
    "/v1/jobs/{job_id}": {"get", "put", "patch", "delete"},
    "/v1/jobs/{job_id}/status": {"get"},
    "/v1/jobs/{job_id}/runs": {"get"},
    "/v1/jobs/{job_id}/upcoming": {"get"},
    "/v1/jobs/{job_id}/missed": {"get"},
    "/v1/jobs/{job_id}/{verb}": {"post"},
    "/v1/applications/{application}": {"put"},
    "/v1/runs": {"get"},
    "/v1/runs/{run_id}": {"get"},
    "/v1/runs/{run_id}/why": {"get"},
    "/v1/runs/{run_id}/cancel": {"post"},
    "/v1/runs/{run_id}/logs": {"get"},
    "/v1/queues": {"get"},
    "/v1/queues/{name}": {"get"},
    "/v1/workers": {"get"},
    "/v1/workers/{worker_id}": {"get"},
    "/v1/workers/{worker_and_verb}": {"post"},
    "/v1/tasks": {"get"},
    "/v1/dead-letters": {"get"},
    "/v1/dead-letters/{run_id}": {"get"},
    "/v1/dead-letters:replay": {"post"},
    "/v1/dead-letters:discard": {"post"},
    "/v1/dead-letters/{run_id}/{verb}": {"post"},
    "/v1/runs/{run_id}/timeline": {"get"},
    "/v1/runs/{run_id}/retry": {"post"},
    "/v1/exchange": {"post"},
    "/v1/exchange/logs": {"post"},
    "/healthz": {"get"},
    "/readyz": {"get"},
}


async def test_the_schema_lists_the_routes_and_what_they_take(api: httpx.AsyncClient) -> None:
    answer = await api.get("/schema/openapi.json")
    assert answer.status_code == 200
    schema = answer.json()
    assert schema["openapi"].startswith("3.1")
    paths = schema["paths"]
    for path, methods in ROUTES.items():
        assert path in paths, path
        assert methods <= paths[path].keys(), path
    log = paths["/v1/runs/{run_id}/logs"]["get"]
    assert list(log["responses"]["200"]["content"]) == ["text/plain", "text/event-stream"]
    assert [parameter["name"] for parameter in log["parameters"]] == ["run_id", "attempt", "follow", "Last-Event-ID"]
    assert not [path for path in paths if path.startswith("/jobs")]  # aliases of /v1/jobs

    bodies = {
        ("/v1/jobs", "post"): JobRequest.__struct_fields__,
        ("/v1/jobs:batch", "post"): ("jobs",),
        ("/v1/jobs/{job_id}", "patch"): JobPatch.__struct_fields__,
        ("/v1/jobs/{job_id}", "put"): JobPatch.__struct_fields__,
        ("/v1/dead-letters:replay", "post"): ("job", "task", "queue", "error", "since", "until", "all", "payload"),
        ("/v1/exchange", "post"): ("worker_id", "seq", "free", "outcomes", "inventory", "hello"),
    }
    for (path, method), fields in bodies.items():
        content = paths[path][method]["requestBody"]["content"]["application/json"]["schema"]
        assert set(fields) <= set(resolved(schema, content)["properties"]), path

    parameters = {parameter["name"] for parameter in paths["/v1/jobs"]["get"]["parameters"]}
    assert parameters == {"status", "label", "queue", "owner", "q", "declared_by", "cursor", "limit"}
    assert resolved(schema, {"$ref": "#/components/schemas/JobRequest"})["properties"]["timeout"] == {
        "oneOf": [{"type": "string"}, {"type": "number"}, {"type": "null"}]
    }
    assert all(operation.get("summary") for path in paths.values() for operation in path.values())


async def test_refusals_and_the_token_are_in_the_schema_as_they_are(api: httpx.AsyncClient) -> None:
    schema = (await api.get("/schema/openapi.json")).json()
    assert schema["security"] == [{"token": []}]
    assert schema["components"]["securitySchemes"] == {"token": {"type": "http", "scheme": "bearer"}}
    refused = await api.post("/v1/jobs:batch", json=[{"task": "a", "timeout": "x"}])
    problem = resolved(schema, {"$ref": "#/components/schemas/Problem"})
    assert set(refused.json()) <= set(problem["properties"]) and set(problem["required"]) <= set(refused.json())
    assert set(refused.json()["errors"][0]) <= set(
        resolved(schema, problem["properties"]["errors"]["items"])["properties"]
    )
    for path, item in schema["paths"].items():
        for operation in item.values():
            if path in ("/healthz", "/readyz"):
                assert operation["security"] == []
            else:
                assert "400" not in operation["responses"] and "security" not in operation, path
                [(media_type, content)] = operation["responses"]["default"]["content"].items()
                assert (media_type, content["schema"]["$ref"]) == (
                    refused.headers["content-type"], "#/components/schemas/Problem",
                )  # fmt: skip
    assert set(schema["paths"]["/v1/jobs"]["post"]["responses"]) == {"200", "201", "default"}
    assert set(schema["paths"]["/v1/dead-letters/{run_id}/{verb}"]["post"]["responses"]) == {"200", "202", "default"}


async def test_no_page_with_scripts_from_elsewhere_is_served(api: httpx.AsyncClient) -> None:
    for page in ("swagger", "redoc", "elements", "rapidoc", "scalar"):
        assert "cdn" not in (await api.get(f"/schema/{page}")).text
    assert (await api.get("/schema")).json()["openapi"].startswith("3.1")


def resolved(schema: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    name = part["$ref"].removeprefix("#/components/schemas/")
    found: dict[str, Any] = schema["components"]["schemas"][name]
    return found
