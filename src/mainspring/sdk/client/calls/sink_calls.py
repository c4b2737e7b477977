"""Calls for sinks: where changes of jobs and runs are sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mainspring.sdk.client.calls.common import match_header, query_of, verb
from mainspring.sdk.client.core import Call, encode, json_of, segment
from mainspring.wire.sinks import SinkList, SinkTested, SinkView

_sink = json_of(SinkView)
_sink_list = json_of(SinkList)
_tested = json_of(SinkTested)


def sinks(*, limit: int | None = None, cursor: str | None = None) -> Call[SinkList]:
    """One page of sinks, by name, with how far each is."""
    return Call("GET", "/v1/sinks", _sink_list, params=query_of({"limit": limit, "cursor": cursor}))


def sink(name: str) -> Call[SinkView]:
    """The sink `name`, without its secrets."""
    return Call("GET", f"/v1/sinks/{segment(name)}", _sink)


def set_sink(
    name: str, settings: Mapping[str, Any] | None = None, *, if_version: int | None = None, **members: Any
) -> Call[SinkView]:
    """Create or change a sink. The settings are those of `PUT /v1/sinks/{name}`, as a mapping or as keywords. A secret
    that is left out keeps its value. With `if_version` only that version is changed."""
    body, headers = encode({**(settings or {}), **members}), match_header(if_version)
    return Call("PUT", f"/v1/sinks/{segment(name)}", _sink, body=body, headers=headers)


def delete_sink(name: str, *, if_version: int | None = None) -> Call[SinkView]:
    """Delete a sink with what it has not sent. Returns it as it was. Not repeated after a lost response."""
    headers = match_header(if_version)
    return Call("DELETE", f"/v1/sinks/{segment(name)}", _sink, headers=headers, repeatable=False)


def pause_sink(name: str) -> Call[SinkView]:
    """Send nothing to the sink until it is resumed. Changes wait."""
    return verb(f"/v1/sinks/{segment(name)}:pause", _sink)


def resume_sink(name: str) -> Call[SinkView]:
    """Send what has waited."""
    return verb(f"/v1/sinks/{segment(name)}:resume", _sink)


def test_sink(name: str) -> Call[SinkTested]:
    """Send a test event to the sink, and return what became of it. Not repeated after a lost response."""
    return Call("POST", f"/v1/sinks/{segment(name)}:test", _tested, repeatable=False)
