"""What a job runs: the options for a task, a shell command or an HTTP call, and for the payload."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from mainspring.cli.option_values import json_or_text, object_of, pair_of

_CALL = "HTTP call"
PayloadOption = Annotated[
    str | None, typer.Option("--payload", metavar="JSON", help="All parameters as one JSON object.")
]
CommandOption = Annotated[
    str | None, typer.Option("--command", metavar="CMD", help="Run a shell command instead of a task.")
]
HttpOption = Annotated[str | None, typer.Option("--http", metavar="URL", help="Call this URL.", rich_help_panel=_CALL)]
MethodOption = Annotated[
    str | None,
    typer.Option(
        "--method", metavar="M", help="HTTP method. Default: POST with a body, GET without.", rich_help_panel=_CALL
    ),
]
HeaderOption = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="'K: V'", help="Header of the request; can be repeated.", rich_help_panel=_CALL),
]
BodyOption = Annotated[
    str | None,
    typer.Option(
        "--body", metavar="JSON", help="Valid JSON is sent as JSON, anything else as text.", rich_help_panel=_CALL
    ),
]
_OPTIONS = {
    "payload": PayloadOption,
    "command": CommandOption,
    "http": HttpOption,
    "method": MethodOption,
    "header": HeaderOption,
    "body": BodyOption,
}


def task_options() -> list[inspect.Parameter]:
    kind = inspect.Parameter.KEYWORD_ONLY
    return [inspect.Parameter(name, kind, default=None, annotation=option) for name, option in _OPTIONS.items()]


def task_values(typed: Mapping[str, Any], params: list[str]) -> dict[str, Any]:
    """The fields that the options describe. params: KEY=VALUE."""
    return {
        "command": typed["command"],
        "http": call_of(typed["http"], typed["method"], typed["header"] or [], typed["body"]),
        "payload": payload_of(typed["payload"], params),
    }


def payload_of(text: str | None, params: list[str]) -> dict[str, Any] | None:
    """The payload from --payload or from key=value pairs."""
    from mainspring.domain.errors import InvalidInput

    if text is None:
        pairs = [pair_of(param, "payload") for param in params]
        return {key: json_or_text(value) for key, value in pairs} or None
    if params:
        raise InvalidInput("--payload and key=value cannot be combined", field="payload", hint="use one of them")
    return object_of(text, "payload", '{"region": "eu"}')


def call_of(url: str | None, method: str | None, headers: list[str], body: str | None) -> dict[str, Any] | None:
    """The HTTP call that the options describe. None without --http."""
    from mainspring.domain.errors import InvalidInput

    if url is None:
        if method is not None or headers or body is not None:
            raise InvalidInput("--method, --header and --body need --http", field="http", hint="give --http URL")
        return None
    call: dict[str, Any] = {"url": url}
    if method is not None:
        call["method"] = method
    if headers:
        call["headers"] = {
            name.strip(): value.strip() for name, value in (pair_of(header, "headers", ":") for header in headers)
        }
    if body is not None:
        call["body"] = json_or_text(body)
    return call
