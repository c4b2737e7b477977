"""FEATURES 8.6: OpenAPI 3.1 at /schema/openapi.json, from which clients can be generated."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

import mainspring
from mainspring.api.app import app_without_a_server
from mainspring.api.errors import STATUS
from mainspring.api.handlers import permissions_of, routed_handlers
from mainspring.api.openapi.document import CODES_OF, document
from mainspring.api.openapi.problem_codes import CODES
from mainspring.api.routing import public_path
from mainspring.domain.job import Delivery, Overlap, Priority
from mainspring.domain.schedules.schedule import ScheduleKind
from mainspring.domain.transitions import JobStatus, RunState
from mainspring.domain.worker_state import WorkerState
from mainspring.wire.jobs import JobPatch, JobRequest
from mainspring.wire.json_schemas import Schemas
from mainspring.wire.problems import Problem

PUBLIC = {("get", "/healthz"), ("get", "/readyz"), ("post", "/v1/exchange/gone"), ("post", "/v1/session"),
          ("get", "/v1/session/providers"), ("post", "/v1/session/providers"), ("post", "/v1/session/providers/answer"),
          ("post", "/v1/user/accept"), ("post", "/v1/callbacks/{token}")}  # fmt: skip
VERBS = (
    "act", "cancel", "check", "create", "declare", "delete", "discard", "drain", "emit", "end", "exchange", "explain",
    "find", "get",
    "list", "patch", "pause", "preview", "put", "replay", "report", "rerun", "reset", "resume", "retry", "revoke",
    "rotate", "run", "ship", "acknowledge", "mute", "send", "take", "test", "unmute", "apply", "export", "plan",
    "accept", "approve", "reject", "change", "disable", "enable", "invite", "remove", "set", "switch",
)  # fmt: skip
# Text, not JSON.
TEXTS = {
    "/metrics": {"text/plain"},
    "/v1/runs/{run_id}/logs": {"text/plain", "text/event-stream"},
    "/v1/stream": {"text/event-stream"},
}
# Codes that no handler answers with: those of the protocol below, of clients, of commands and of migrations.
SOURCE = Path(mainspring.__file__).parent
ANSWERING = ("api", "brokers", "domain", "operations")
NOT_OF_AN_OPERATION = {"method_not_allowed", "malformed_request", "internal", "data_folder_not_ours", "insecure_http"}


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(msgspec.json.encode(document(app_without_a_server())))
    return found


@pytest.mark.anyio
async def test_it_is_served_to_those_who_have_a_token(schema: dict[str, Any], api: httpx.AsyncClient) -> None:
    answer = await api.get("/schema/openapi.json")
    assert (answer.status_code, answer.json()) == (200, schema)
    assert (await api.get("/schema")).json() == schema
    assert (await api.get("/schema/openapi.json", headers={"Authorization": ""})).status_code == 401


def operations(schema: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in schema["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


def resolved(schema: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = schema["components"]["schemas"][part["$ref"].removeprefix("#/components/schemas/")]
    return found


@pytest.mark.slow
def test_it_is_valid(schema: dict[str, Any]) -> None:
    assert schema["openapi"].startswith("3.1")
    OpenAPIV31SpecValidator(schema).validate()


def test_every_route_is_an_operation_and_every_operation_a_route(schema: dict[str, Any]) -> None:
    shown = {(method.upper(), path) for path, method, _ in operations(schema)}
    served = {
        (handler.method, public_path(route, handler)) for route, handler in routed_handlers(app_without_a_server())
    }
    aliases = {(method, path) for method, path in served - shown if path.startswith("/jobs") or path == "/schema"}
    assert shown <= served
    assert served - shown - aliases == {("POST", "/v1/jobs/{job_id}:run-now")}
    assert {("POST", "/v1/jobs/{job_id}:pause"), ("POST", "/v1/runs/{run_id}:cancel")} <= shown
    assert not [path for _, path in shown if "verb" in path]
    assert len(shown) > 40 and len(shown) >= len(permissions_of(app_without_a_server()))


def test_every_operation_says_what_it_does_under_a_name_of_its_own(schema: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in operations(schema)]
    assert len(set(names)) == len(names)
    assert {"getJob", "pauseJob", "runJobNow", "retryRun", "replayDeadLetter", "replayDeadLetters"} <= set(names)
    tags = {tag["name"] for tag in schema["tags"]}
    for path, _, operation in operations(schema):
        assert re.fullmatch(f"({'|'.join(VERBS)})([A-Z][a-z]+)+", operation["operationId"]), operation["operationId"]
        assert operation["summary"] and operation["description"].endswith("."), path
        assert operation["tags"] and set(operation["tags"]) <= tags
        for parameter in operation.get("parameters", []):
            assert parameter["description"].endswith("."), (path, parameter["name"])
            assert "example" in parameter or parameter["name"] == "cursor"
        if "requestBody" in operation:
            [content] = operation["requestBody"]["content"].values()
            assert content["examples"], path
        for status, answer in operation["responses"].items():
            assert answer["description"], (path, status)
            for media_type, content in answer["content"].items():
                assert "example" in content and "schema" in content, (path, status, media_type)


def test_examples_of_answers_match_their_schemas(schema: dict[str, Any]) -> None:
    registry = {"components": schema["components"]}
    for path, method, operation in operations(schema):
        for status, answer in operation["responses"].items():
            for content in answer["content"].values():
                found = list(errors_of(content["example"], {**content["schema"], **registry}))
                assert not found, (method, path, status, found)


def errors_of(value: Any, schema: dict[str, Any]) -> Iterator[str]:
    from jsonschema import Draft202012Validator

    for error in Draft202012Validator(schema).iter_errors(value):
        yield f"{error.json_path}: {error.message}"


def offered(struct: type[msgspec.Struct]) -> list[str]:
    return list(struct.__struct_fields__)


def test_bodies_have_the_fields_of_their_structs(schema: dict[str, Any]) -> None:
    bodies = {
        ("/v1/jobs", "post"): offered(JobRequest),
        ("/v1/jobs/{job_id}", "patch"): offered(JobPatch),
        ("/v1/jobs/{job_id}", "put"): offered(JobPatch),
        ("/v1/dead-letters:replay", "post"): (
            "job", "task", "queue", "error", "since", "until", "all", "limit", "payload",
        ),
    }  # fmt: skip
    for (path, method), fields in bodies.items():
        content = schema["paths"][path][method]["requestBody"]["content"]["application/json"]["schema"]
        struct = resolved(schema, content)
        assert set(fields) == set(struct["properties"]), path
        assert struct["additionalProperties"] is False
    timeout = resolved(schema, {"$ref": "#/components/schemas/JobRequest"})["properties"]["timeout"]
    assert [part.get("format", part["type"]) for part in timeout["anyOf"]] == ["timespan", "number", "null"]


def test_states_and_choices_are_enums(schema: dict[str, Any]) -> None:
    enums = {name: part["enum"] for name, part in schema["components"]["schemas"].items() if "enum" in part}
    assert enums["RunState"] == list(RunState) and enums["JobState"] == list(JobStatus)
    assert enums["WorkerState"] == [state.name for state in WorkerState]
    assert enums["Priority"] == [priority.word for priority in Priority]
    assert enums["Overlap"] == [overlap.word for overlap in Overlap]
    assert enums["Delivery"] == list(Delivery)
    assert set(enums["ScheduleType"]) == {kind.value for kind in ScheduleKind}
    view = schema["components"]["schemas"]["RunView"]["properties"]
    assert view["status"] == {"$ref": "#/components/schemas/RunState"}


def test_what_is_no_json_is_shown_as_what_it_is(schema: dict[str, Any]) -> None:
    for path, _, operation in operations(schema):
        media_types = {media for status, answer in operation["responses"].items() if status < "300"
                       for media in answer["content"]}  # fmt: skip
        assert media_types == TEXTS.get(path, {"application/json"}), path
    log = schema["paths"]["/v1/runs/{run_id}/logs"]["get"]
    assert [parameter["name"] for parameter in log["parameters"]] == ["run_id", "attempt", "follow", "Last-Event-ID"]


@pytest.mark.anyio
async def test_every_refusal_is_a_problem_document_with_its_codes(
    schema: dict[str, Any], api: httpx.AsyncClient
) -> None:
    assert schema["security"] == [{"token": []}]
    assert schema["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    refused = await api.post("/v1/jobs:batch", json=[{"task": "a", "timeout": "x"}])
    for path, method, operation in operations(schema):
        public = (method, path) in PUBLIC
        assert (operation.get("security") == []) == public, path
        statuses = set(operation["responses"])
        assert "default" not in statuses  # each is named
        assert public or {"401", "403", "422", "503"} <= statuses, path
        assert ("{" in path) == ("404" in statuses), path
        assert ("requestBody" not in operation) or {"400", "413", "415", "422"} <= statuses, path
        for status, answer in operation["responses"].items():
            if status < "400" or (path, status) == ("/readyz", "503"):
                continue
            [(media_type, content)] = answer["content"].items()
            assert (media_type, content["schema"]) == (
                refused.headers["content-type"], {"$ref": "#/components/schemas/Problem"},
            )  # fmt: skip
            assert {CODES[code][0] for code in answer[CODES_OF]} == {int(status)}
            assert ("Retry-After" in answer.get("headers", {})) == (status in ("429", "503")), (path, status)


def test_pages_versions_and_places_are_headers(schema: dict[str, Any]) -> None:
    paths = schema["paths"]
    assert "Link" in paths["/v1/runs"]["get"]["responses"]["200"]["headers"]
    assert "ETag" in paths["/v1/jobs/{job_id}"]["get"]["responses"]["200"]["headers"]
    assert "ETag" in paths["/v1/jobs/{job_id}:pause"]["post"]["responses"]["200"]["headers"]
    assert "If-Match" in [parameter["name"] for parameter in paths["/v1/jobs/{job_id}"]["patch"]["parameters"]]
    assert {"200", "201"} <= set(paths["/v1/jobs"]["post"]["responses"])
    assert "Location" in paths["/v1/jobs"]["post"]["responses"]["201"]["headers"]


def test_the_table_has_the_codes_that_the_source_answers_with_and_no_other() -> None:
    texts = {
        file: file.read_text()
        for folder in (*ANSWERING, "store")
        for file in (SOURCE / folder).rglob("*.py")
        if file.name not in ("early_refusals.py", "http_protocol.py", "connections.py", "answers.py")
        and file.parent.name not in ("openapi", "routes")
    }
    answered = {
        code
        for file, text in texts.items()
        if file.relative_to(SOURCE).parts[0] in ANSWERING
        for code in re.findall(r'\bcode(?:: str)? ?= ?"(\w+)"', text)
    }
    assert answered - CODES.keys() - NOT_OF_AN_OPERATION == {"error", "forbidden"}  # of base classes
    assert [code for code in CODES if not any(f'"{code}"' in text for text in texts.values())] == []


def test_a_status_of_the_table_is_one_that_errors_have() -> None:
    assert {status for status, _ in CODES.values()} <= {*STATUS.values(), 400, 429}


def test_two_types_of_one_name_are_refused() -> None:
    other = msgspec.defstruct("Problem", [("x", int)])
    schemas = Schemas()
    schemas.of(Problem)
    with pytest.raises(ValueError, match="Problem"):
        schemas.of(other)


@pytest.mark.anyio
async def test_no_page_with_scripts_from_elsewhere_is_served(api: httpx.AsyncClient) -> None:
    for page in ("swagger", "redoc", "elements", "rapidoc", "scalar"):
        assert "cdn" not in (await api.get(f"/schema/{page}")).text
