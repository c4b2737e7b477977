"""The options of an http task on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mainspring.kinds.option_values import pair, secret_or_text, value_of
from mainspring.kinds.registry import KindOptions, Option

_PANEL = "HTTP call"
_HEADER = "'Authorization: Bearer x'"


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
            name.strip(): secret_or_text(value.strip(), "headers")
            for name, value in (pair(header, "headers", _HEADER, ":") for header in headers)
        }
    if body is not None:
        call["body"] = value_of(body)
    return call


def _call(given: Mapping[str, Any]) -> dict[str, Any] | None:
    return call_of(given["http"], given["method"], given["header"] or [], given["body"])


OPTIONS = KindOptions(
    of_a_job=(
        Option("http", "--http", "URL", "Call this URL.", panel=_PANEL),
        Option("method", "--method", "M", "HTTP method. Default: POST with a body, GET without.", panel=_PANEL),
        Option(
            "header",
            "--header",
            "'K: V'",
            "Header of the request; can be repeated. 'K: @secret:NAME' is the value of a secret.",
            repeated=True,
            panel=_PANEL,
        ),
        Option("body", "--body", "JSON", "Valid JSON is sent as JSON, anything else as text.", panel=_PANEL),
    ),
    call=_call,
)
