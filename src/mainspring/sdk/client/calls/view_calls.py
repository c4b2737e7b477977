"""Calls for saved views of lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mainspring.sdk.client.calls.common import query_of
from mainspring.sdk.client.core import Call, encode, json_of, segment
from mainspring.wire.views import ViewList, ViewView

_view = json_of(ViewView)
_view_list = json_of(ViewList)


def views(*, of: str | None = None, limit: int | None = None, cursor: str | None = None) -> Call[ViewList]:
    """One page of saved views, by name; with `of` those of one list, such as "jobs"."""
    return Call("GET", "/v1/views", _view_list, params=query_of({"list": of, "limit": limit, "cursor": cursor}))


def view(name: str) -> Call[ViewView]:
    """The saved view `name`."""
    return Call("GET", _path(name), _view)


def set_view(
    name: str, of: str, filter: Mapping[str, str] | None = None, columns: Sequence[str] | None = None
) -> Call[ViewView]:
    """Save a view of the list `of` for all of the tenant, or replace the one of this name."""
    given = {"list": of, "filter": filter, "columns": columns}
    return Call("PUT", _path(name), _view, body=encode({key: one for key, one in given.items() if one is not None}))


def delete_view(name: str) -> Call[ViewView]:
    """Delete a saved view. Not repeated after a lost response."""
    return Call("DELETE", _path(name), _view, repeatable=False)


def _path(name: str) -> str:
    return f"/v1/views/{segment(name)}"
