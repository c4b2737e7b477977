"""The OpenAPI document: the framework derives it from the routes, and this module adds what the framework cannot know.

It is served as a JSON file only. The framework's HTML pages load scripts from other sites, and a browser has no token.
"""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, Router
from litestar.enums import OpenAPIMediaType
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import OpenAPIRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme

from mainspring.api.operation_names import OPERATION
from mainspring.kernel.version import VERSION
from mainspring.wire.problems import PROBLEM_MEDIA_TYPE, Problem

_OPEN = ("/healthz", "/readyz")
_REFUSAL = {
    "description": "Error: a problem document (RFC 9457) with a stable code, the field and a hint",
    "content": {PROBLEM_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
# Handlers with a second success status: (path, method) -> the other status and its description.
_MORE_ANSWERS = {
    ("/v1/jobs", "post"): ("200", "The idempotency key was used before: the existing job"),
    ("/v1/jobs/{job_and_verb}", "post"): ("202", "runNow: the new run"),
    ("/v1/jobs/{job_id}/{verb}", "post"): ("202", "runNow: the new run"),
    ("/v1/dead-letters/{run_and_verb}", "post"): ("202", "replay: the new run"),
    ("/v1/dead-letters/{run_id}/{verb}", "post"): ("202", "replay: the new run"),
}
_LIMIT = "The most items per page. A page with large payloads and results has fewer. `next` is set if more follow."


def openapi_config() -> OpenAPIConfig:
    return OpenAPIConfig(
        title="Mainspring",
        version=VERSION,
        description="A distributed job scheduler: every fire time runs once, and no acknowledged job is lost.",
        openapi_router=Router("/schema", route_handlers=[], opt={OPERATION: "schema.read"}),
        components=Components(security_schemes={"token": SecurityScheme(type="http", scheme="bearer")}),
        security=[{"token": []}],
        render_plugins=[_SchemaFile(path="/openapi.json", media_type=OpenAPIMediaType.OPENAPI_JSON)],
    )


class _SchemaFile(OpenAPIRenderPlugin):
    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        return self.render_json(request, completed(openapi_schema))


def completed(schema: dict[str, Any]) -> dict[str, Any]:
    """A copy of the framework's document with the problem responses, the second statuses and the log stream added."""
    _, problem = msgspec.json.schema_components([Problem], ref_template="#/components/schemas/{name}")
    paths = {path: _path(path, item) for path, item in schema["paths"].items() if not path.startswith("/jobs")}
    components = {**schema["components"], "schemas": {**schema["components"]["schemas"], **problem}}
    return {**schema, "paths": paths, "components": components}


def _path(path: str, item: dict[str, Any]) -> dict[str, Any]:
    return {method: _operation(path, method, operation) for method, operation in item.items()}


def _operation(path: str, method: str, operation: dict[str, Any]) -> dict[str, Any]:
    responses = {status: answer for status, answer in operation["responses"].items() if status != "400"}
    if more := _MORE_ANSWERS.get((path, method)):
        [declared] = responses.values()
        responses[more[0]] = {**declared, "description": more[1]}
    if path not in _OPEN:
        responses["default"] = _REFUSAL
    parameters = [
        {**parameter, "description": _LIMIT} if parameter["name"] == "limit" and "cursor" in _names(operation)
        else parameter
        for parameter in operation.get("parameters", [])
    ]  # fmt: skip
    whole = {**operation, "responses": responses}
    if path == "/v1/runs/{run_id}/logs":
        _describe_log(whole, parameters)
    if parameters:
        whole["parameters"] = parameters
    return {**whole, "security": []} if path in _OPEN else whole


def _describe_log(operation: dict[str, Any], parameters: list[dict[str, Any]]) -> None:
    """Describe the log: plain text, or an event stream that a client can resume."""
    answer = operation["responses"]["200"]
    content = {**answer["content"], "text/event-stream": {"schema": {"type": "string"}}}
    operation["responses"] = {**operation["responses"], "200": {**answer, "content": content}}
    parameters.append(
        {
            "name": "Last-Event-ID",
            "in": "header",
            "required": False,
            "description": "With follow=true: the id of the last received event. The stream continues after it.",
            "schema": {"type": "string"},
        }
    )


def _names(operation: dict[str, Any]) -> set[str]:
    return {parameter["name"] for parameter in operation.get("parameters", [])}
