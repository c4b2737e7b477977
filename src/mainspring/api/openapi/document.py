"""The document: one operation for each handler, named after its function."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from mainspring.api.answers import Answer
from mainspring.api.handlers import HasRoutes, RouteHandler, routed_handlers
from mainspring.api.openapi.answer_examples import example_of
from mainspring.api.openapi.parameters import HEADERS, PARAMETERS, PATH_TYPES, SCHEMAS
from mainspring.api.openapi.problem_codes import CODES, problems_of
from mainspring.api.parameters import Parameter
from mainspring.api.routing import public_path
from mainspring.api.web import Response
from mainspring.kernel.version import VERSION
from mainspring.wire.backfills import BackfillView
from mainspring.wire.bulk import OperationView
from mainspring.wire.calendars import CalendarView
from mainspring.wire.channels import ChannelView
from mainspring.wire.gates import GateView
from mainspring.wire.jobs import JobView, Nothing
from mainspring.wire.json_schemas import REF, Schemas
from mainspring.wire.limits import LimitDetails
from mainspring.wire.problems import PROBLEM_MEDIA_TYPE, Problem
from mainspring.wire.protocol import SECRET_HEADER, WORKER_HEADER
from mainspring.wire.rules import RuleView
from mainspring.wire.runs import DeadLetterView, QueueView, RunView, WorkerView
from mainspring.wire.sinks import SinkView
from mainspring.wire.views import ViewView
from mainspring.wire.workflows import WorkflowRunView

_SHORT = "/jobs"  # the same as /v1/jobs
CODES_OF = "x-problem-codes"
EVENT_STREAM = "text/event-stream"  # OpenAPI 3.1 cannot describe the items of a stream
_DESCRIPTION = """A distributed job scheduler: every fire time runs once, and no acknowledged job is lost.

- Every refusal is a problem document (RFC 9457) with a stable `code`, the field and a hint. Nothing is stored then.
- A request can be repeated safely with an `idempotency_key` in its body: it creates nothing twice.
- 429 and 503 say with `Retry-After` when to try again.
- Lists come page by page: `next` and the header `Link` lead to the next page.
- `/v1/jobs/{job_id}/pause` means the same as `/v1/jobs/{job_id}:pause`, and `/jobs` the same as `/v1/jobs`.
- GET can be asked as HEAD. OPTIONS, and a refusal with 405, say in `Allow` which methods a path has.
"""
_WITH_ETAG = (
    JobView, CalendarView, GateView, QueueView, RunView, WorkflowRunView, DeadLetterView, LimitDetails, WorkerView,
    OperationView, BackfillView, ChannelView, RuleView, ViewView, SinkView,
)  # fmt: skip
_TAGS = {
    "jobs": ("jobs", "What to run and when."),
    "schedules": ("jobs", "What to run and when."),
    "runs": ("runs", "One firing of a job each, with its attempts and its output."),
    "dead_letters": ("dead letters", "Runs that failed for good, kept with their payloads."),
    "missed_fires": ("jobs", "What to run and when."),
    "events": ("events", "What applications emit, and what it starts."),
    "sources": ("sources", "What connectors read from brokers."),
    "operations": ("operations", "One verb on many jobs, runs or dead letters."),
    "queues": ("queues", "Named lines of work, and their limits."),
    "tenant": ("queues", "Named lines of work, and their limits."),
    "limits": ("limits", "How many runs at once."),
    "workflows": ("workflows", "Jobs whose runs are graphs of steps."),
    "workflow_runs": ("workflows", "Jobs whose runs are graphs of steps."),
    "approvals": ("workflows", "Jobs whose runs are graphs of steps."),
    "callbacks": ("workflows", "Jobs whose runs are graphs of steps."),
    "backfills": ("backfills", "Fires of the past, made up for."),
    "calendars": ("calendars", "Which days and times schedules may use."),
    "views": ("views", "Saved views of lists."),
    "secrets": ("secrets", "Values that only workers get."),
    "channels": ("notifications", "Who is told what has happened."),
    "rules": ("notifications", "Who is told what has happened."),
    "notifications": ("notifications", "Who is told what has happened."),
    "sinks": ("sinks", "Where changes of jobs and runs are sent."),
    "breakers": ("circuit breakers", "What stops the runs of a job or task after failures in a row."),
    "tasks": ("tasks", "What workers can do."),
    "workers": ("workers", "Processes that run attempts."),
    "tenants": ("access", "Tenants and tokens."),
    "tokens": ("access", "Tenants and tokens."),
    "audit": ("access", "Tenants and tokens."),
    "session": ("access", "Tenants and tokens."),
    "sessions": ("access", "Tenants and tokens."),
    "users": ("people", "Users of tenants, and what they do for themselves."),
    "user": ("people", "Users of tenants, and what they do for themselves."),
    "worker": ("worker protocol", "What worker programs call."),
    "applications": ("applications", "What the code of applications declares."),
    "files": ("files", "Job files: plan, apply and export."),
    "search": ("ids", "Ids by a part of them."),
    "nodes": ("insights", "How the whole is doing."),
    "ids": ("ids", "Ids by a part of them."),
    "stream": ("insights", "How the whole is doing."),
    "insights": ("insights", "How the whole is doing."),
    "health": ("health", "How the server is."),
    "metrics": ("health", "How the server is."),
    "schema": ("health", "How the server is."),
}


@cache
def document(app: HasRoutes) -> dict[str, Any]:
    """The OpenAPI document of the app, as JSON has it."""
    schemas = Schemas()
    schemas.of(Problem)
    paths: dict[str, dict[str, Any]] = {}
    for route, handler in routed_handlers(app):
        if not _is_alias(route.path, handler):
            operation = _Operation(public_path(route, handler), handler, schemas)
            paths.setdefault(operation.path, {})[operation.method] = operation.as_json()
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Mainspring", "version": VERSION, "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": words} for name, words in dict(_TAGS.values()).items()],
        "security": [{"token": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(schemas.components.items())),
            "headers": {
                name: {"description": words, "schema": schema, "example": example}
                for name, (words, schema, example) in HEADERS.items()
            },
            "securitySchemes": {
                "token": {
                    "type": "http", "scheme": "bearer",
                    "description": "A token of a tenant. The file admin-token in the data folder contains one.",
                }
            },
        },
    }  # fmt: skip


def _is_alias(path: str, handler: RouteHandler) -> bool:
    """Whether the document shows the same operation at another path."""
    if handler.verb is not None and path.rpartition("/")[2] != handler.verb:
        return True
    return path.startswith(_SHORT) or path == "/schema"


class _Operation:
    """One handler at one path."""

    def __init__(self, path: str, handler: RouteHandler, schemas: Schemas) -> None:
        self.path = path
        self._schemas = schemas
        self.handler = handler
        self.method = handler.method.lower()
        hints = get_type_hints(handler.function, include_extras=True)
        returned, data = hints["return"], hints.get("data")
        self._returned = get_args(returned)[0] if get_origin(returned) is Response else returned
        body = handler.body or data
        self._body = None if body is None or Nothing in (body, *get_args(body)) else _without_none(body)
        self._answers: Mapping[int, Answer] = handler.answers or {
            handler.status_code: Answer(f"{handler.summary}: done." if self.method != "get" else "What was asked for.")
        }

    def as_json(self) -> dict[str, Any]:
        handler = self.handler
        parameters = [_parameter(one, self._schemas) for one in handler.parameters]
        if "wrong_incarnation" in handler.problems:
            parameters.append(_described(SECRET_HEADER, "header", SCHEMAS[SECRET_HEADER], required=False))
        if "wrong_secret" in handler.problems:
            proof = (WORKER_HEADER, SECRET_HEADER)
            parameters += [_described(name, "header", SCHEMAS[name], required=True) for name in proof]
        whole: dict[str, Any] = {
            "operationId": _camel(handler.function.__name__),
            "tags": [_TAGS[handler.operation.partition(".")[0]][0]],
            "summary": handler.summary,
            "description": " ".join((handler.function.__doc__ or "").split()),
        }
        if parameters:
            whole["parameters"] = parameters
        if self._body is not None:
            whole["requestBody"] = {
                "required": handler.needs_body,
                "content": {
                    "application/json": {
                        "schema": self._schemas.of(self._body),
                        "examples": {
                            name.replace(" ", "-"): {"summary": name, "value": value}
                            for name, value in (handler.examples or {}).items()
                        },
                    }
                },
            }
        whole["responses"] = {**self._successes(), **self._refusals()}
        if handler.is_public:
            whole["security"] = []
        return whole

    def _successes(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for status, answer in sorted(self._answers.items()):
            headers = list(answer.headers)
            if self._returned in _WITH_ETAG:
                headers.append("ETag")
            if "cursor" in [parameter.name for parameter in self.handler.parameters]:
                headers.append("Link")
            if answer.content is not None:
                content: dict[str, Any] = {
                    media: {"schema": {"type": "string"}, "example": example}
                    for media, example in answer.content.items()
                }
                if answer.events:
                    content[EVENT_STREAM]["schema"] = {"description": "Server-sent events; their data is JSON."}
                    content[EVENT_STREAM]["x-events"] = {
                        name: self._schemas.of(kind) for name, kind in answer.events.items()
                    }
            else:
                schema = self._schemas.of(answer.body or self._returned)
                if answer.or_body is not None:
                    schema = {"anyOf": [schema, self._schemas.of(answer.or_body)]}
                content = {"application/json": {"schema": schema, "example": example_of(answer.body or self._returned)}}
            found[str(status)] = _answer(answer.description, content, headers)
        return found

    def _refusals(self) -> dict[str, Any]:
        by_status = problems_of(
            self.handler,
            has_path="{" in self.path,
            has_parameters=bool(self.handler.parameters),
            has_body=self.handler.decode is not None,
            reads_store=not self.handler.operation.startswith("health."),
        )
        return {
            str(status): _refusal(status, codes) for status, codes in by_status.items() if status not in self._answers
        }


def _parameter(one: Parameter, schemas: Schemas) -> dict[str, Any]:
    schema = schemas.of(PATH_TYPES.get(one.name, one.kind) if one.place == "path" else one.kind)
    if one.place == "path" and one.name.endswith("_id") and one.name != "job_id":
        schema = {"type": "string", "format": "uuid"}
    schema = SCHEMAS.get(one.argument) or SCHEMAS.get(one.name, schema)
    if one.bounds is not None:
        bounds = {"minimum": one.bounds.ge, "maximum": one.bounds.le}
        schema = {**schema, **{name: bound for name, bound in bounds.items() if bound is not None}}
    if one.place == "query" and isinstance(one.default, int):
        schema = {**schema, "default": one.default}
    said = PARAMETERS.get(one.argument) or PARAMETERS[one.name]
    return _described(one.name, one.place, schema, required=one.required, said=said)


def _described(
    name: str, place: str, schema: dict[str, Any], *, required: bool, said: tuple[str, Any] | None = None
) -> dict[str, Any]:
    words, example = said or PARAMETERS[name]
    whole = {"name": name, "in": place, "required": required, "description": words, "schema": schema}
    return whole if example is None else {**whole, "example": example}


def _answer(description: str, content: dict[str, Any], headers: list[str]) -> dict[str, Any]:
    whole: dict[str, Any] = {"description": description}
    if headers:
        whole["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in headers}
    return {**whole, "content": content}


def _refusal(status: int, codes: list[str]) -> dict[str, Any]:
    lines = "\n".join(f"- `{code}`: {CODES[code][1]}" for code in codes)
    headers = {401: ["WWW-Authenticate"], 429: ["Retry-After"], 503: ["Retry-After"]}.get(status, [])
    example = {
        "type": f"urn:mainspring:problem:{codes[0]}", "title": codes[0].replace("_", " "), "status": status,
        "code": codes[0], "detail": CODES[codes[0]][1],
    }  # fmt: skip
    content = {PROBLEM_MEDIA_TYPE: {"schema": {"$ref": REF.format(name="Problem")}, "example": example}}
    return {**_answer(f"Refused:\n{lines}", content, headers), CODES_OF: codes}


def _without_none(kind: Any) -> Any:
    parts = get_args(kind)
    if type(None) not in parts:
        return kind
    rest = [part for part in parts if part is not type(None)]
    union: Any = rest[0]
    for part in rest[1:]:
        union = union | part
    return union


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
