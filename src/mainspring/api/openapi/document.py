"""The document: one operation for each handler, named after its function."""

from __future__ import annotations

from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from litestar import Litestar
from litestar.constants import RESERVED_KWARGS
from litestar.params import HeaderParameter, ParameterKwarg
from litestar.response import Response

from mainspring.api.answers import ANSWERS, BODY, EXAMPLES, PROBLEMS, Answer
from mainspring.api.handlers import is_public, operation_of, routed_handlers
from mainspring.api.openapi.answer_examples import example_of
from mainspring.api.openapi.parameters import HEADERS, PARAMETERS, PATH_TYPES, SCHEMAS
from mainspring.api.openapi.problem_codes import CODES, problems_of
from mainspring.api.openapi.schemas import REF, Schemas
from mainspring.api.routing import VERB, public_path
from mainspring.kernel.version import VERSION
from mainspring.wire.backfills import BackfillView
from mainspring.wire.bulk import OperationView
from mainspring.wire.calendars import CalendarView
from mainspring.wire.channels import ChannelView
from mainspring.wire.gates import GateView
from mainspring.wire.jobs import JobView, Nothing
from mainspring.wire.limits import LimitDetails
from mainspring.wire.problems import PROBLEM_MEDIA_TYPE, Problem
from mainspring.wire.protocol import SECRET_HEADER, WORKER_HEADER
from mainspring.wire.rules import RuleView
from mainspring.wire.runs import DeadLetterView, QueueView, RunView, WorkerView
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
    OperationView, BackfillView, ChannelView, RuleView, ViewView,
)  # fmt: skip
_TAGS = {
    "jobs": ("jobs", "What to run and when."),
    "schedules": ("jobs", "What to run and when."),
    "runs": ("runs", "One firing of a job each, with its attempts and its output."),
    "dead_letters": ("dead letters", "Runs that failed for good, kept with their payloads."),
    "missed_fires": ("jobs", "What to run and when."),
    "events": ("events", "What applications emit, and what it starts."),
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
def document(app: Litestar) -> dict[str, Any]:
    """The OpenAPI document of the app, as JSON has it."""
    schemas = Schemas()
    schemas.of(Problem)
    paths: dict[str, dict[str, Any]] = {}
    for route, handler in routed_handlers(app):
        if not _is_alias(route.path_format, handler):
            operation = _Operation(route.path_format, public_path(route, handler), handler, schemas)
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


def _is_alias(path: str, handler: Any) -> bool:
    """Whether the document shows the same operation at another path."""
    if VERB in handler.opt and path.rpartition("/")[2] != handler.opt[VERB]:
        return True
    return path.startswith(_SHORT) or path == "/schema"


class _Operation:
    """One handler at one path."""

    def __init__(self, route_path: str, path: str, handler: Any, schemas: Schemas) -> None:
        self.path = path
        self._schemas = schemas
        self.handler = handler
        [self.method] = (method.lower() for method in handler.http_methods)
        hints = get_type_hints(handler.fn, include_extras=True)
        returned = hints.pop("return")
        self._returned = get_args(returned)[0] if get_origin(returned) is Response else returned
        self._optional_body = type(None) in get_args(hints.get("data"))
        data = hints.pop("data", None)
        body = handler.opt.get(BODY) or data
        self._takes_body = data is not None
        self._body = None if body is None or Nothing in (body, *get_args(body)) else _without_none(body)
        fields = handler.parsed_fn_signature.parameters
        self._parameters = [
            _Parameter(name, kind, fields[name], f"{{{name}}}" in route_path)
            for name, kind in hints.items()
            if name not in RESERVED_KWARGS
        ]
        self._answers: dict[int, Answer] = handler.opt.get(ANSWERS) or {
            handler.status_code: Answer(f"{handler.summary}: done." if self.method != "get" else "What was asked for.")
        }

    def as_json(self) -> dict[str, Any]:
        handler, operation = self.handler, operation_of(self.handler)
        parameters = [parameter.as_json(self._schemas) for parameter in self._parameters]
        if "wrong_incarnation" in handler.opt.get(PROBLEMS, ()):
            parameters.append(_described(SECRET_HEADER, "header", SCHEMAS[SECRET_HEADER], required=False))
        if "wrong_secret" in handler.opt.get(PROBLEMS, ()):
            proof = (WORKER_HEADER, SECRET_HEADER)
            parameters += [_described(name, "header", SCHEMAS[name], required=True) for name in proof]
        whole: dict[str, Any] = {
            "operationId": _camel(handler.fn.__name__),
            "tags": [_TAGS[operation.partition(".")[0]][0]],
            "summary": handler.summary,
            "description": " ".join((handler.fn.__doc__ or "").split()),
        }
        if parameters:
            whole["parameters"] = parameters
        if self._body is not None:
            whole["requestBody"] = {
                "required": not self._optional_body,
                "content": {
                    "application/json": {
                        "schema": self._schemas.of(self._body),
                        "examples": {
                            name.replace(" ", "-"): {"summary": name, "value": value}
                            for name, value in handler.opt[EXAMPLES].items()
                        },
                    }
                },
            }
        whole["responses"] = {**self._successes(), **self._refusals()}
        if is_public(handler):
            whole["security"] = []
        return whole

    def _successes(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for status, answer in sorted(self._answers.items()):
            headers = list(answer.headers)
            if self._returned in _WITH_ETAG:
                headers.append("ETag")
            if "cursor" in [parameter.name for parameter in self._parameters]:
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
            has_parameters=bool(self._parameters),
            has_body=self._takes_body,
            reads_store=not operation_of(self.handler).startswith("health."),
        )
        return {
            str(status): _refusal(status, codes) for status, codes in by_status.items() if status not in self._answers
        }


class _Parameter:
    def __init__(self, name: str, kind: Any, field: Any, in_path: bool) -> None:
        definition = field.kwarg_definition
        self._argument = self.name = name
        self.place = "path" if in_path else "query"
        if isinstance(definition, HeaderParameter):
            self.name, self.place = definition.name or name, "header"
        elif isinstance(definition, ParameterKwarg) and definition.name:
            self.name = definition.name
        self._bounds = definition if isinstance(definition, ParameterKwarg) else None
        self._default = field.default
        self.required = in_path or not field.has_default
        self.kind = PATH_TYPES.get(name, kind) if in_path else _without_none(_plain(kind))

    def as_json(self, schemas: Schemas) -> dict[str, Any]:
        schema = schemas.of(self.kind)
        if self.place == "path" and self.name.endswith("_id") and self.name != "job_id":
            schema = {"type": "string", "format": "uuid"}
        schema = SCHEMAS.get(self._argument) or SCHEMAS.get(self.name, schema)
        if self._bounds is not None:
            bounds = {"minimum": self._bounds.ge, "maximum": self._bounds.le}
            schema = {**schema, **{name: bound for name, bound in bounds.items() if bound is not None}}
        if self.place == "query" and isinstance(self._default, int):
            schema = {**schema, "default": self._default}
        said = PARAMETERS.get(self._argument) or PARAMETERS[self.name]
        return _described(self.name, self.place, schema, required=self.required, said=said)


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


def _plain(kind: Any) -> Any:
    """The type below the framework's Annotated."""
    if any(isinstance(part, ParameterKwarg) for part in getattr(kind, "__metadata__", ())):
        return get_args(kind)[0]
    return kind


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
