"""Calls for sources: what connectors read from brokers."""

from __future__ import annotations

from mainspring.sdk.client.calls.common import query_of
from mainspring.sdk.client.core import Call, encode, json_of, segment
from mainspring.wire.sources import DeadMessageList, SourceDeleted, SourceList, SourceTake, SourceTaken

_taken = json_of(SourceTaken)
_source_list = json_of(SourceList)
_dead_list = json_of(DeadMessageList)
_deleted = json_of(SourceDeleted)


def take_messages(source: str, request: SourceTake) -> Call[SourceTaken]:
    """Take messages that a connector has read from a broker. A repeat changes nothing."""
    return Call("POST", f"{_path(source)}:take", _taken, body=encode(request))


def sources(*, limit: int | None = None, cursor: str | None = None) -> Call[SourceList]:
    """One page of sources, by name and partition."""
    return Call("GET", "/v1/sources", _source_list, params=query_of({"limit": limit, "cursor": cursor}))


def dead_messages(source: str, *, limit: int | None = None, cursor: str | None = None) -> Call[DeadMessageList]:
    """One page of the messages of a source that could not become an event or a job, newest first."""
    given = {"limit": limit, "cursor": cursor}
    return Call("GET", f"{_path(source)}/dead-messages", _dead_list, params=query_of(given))


def delete_source(source: str) -> Call[SourceDeleted]:
    """Delete a source: its offsets, the ids of its messages and its dead messages. Not repeated after a lost
    response."""
    return Call("DELETE", _path(source), _deleted, repeatable=False)


def _path(source: str) -> str:
    return f"/v1/sources/{segment(source)}"
