"""Messages about saved views: a filter and columns of a list, with a name that all of a tenant see."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from mainspring.wire.states import words

LISTS = ("jobs", "runs", "failures", "dead-letters", "workflows")
ListWord = Annotated[str, words("ViewedList", *LISTS)]
FilterText = Annotated[str, Meta(max_length=1000)]
ColumnName = Annotated[str, Meta(min_length=1, max_length=40)]


class ViewRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, rename={"of_list": "list"}):
    """The body of `PUT /v1/views/{name}`. list: the list that the view shows. filter: its parameters, such as `status`,
    as the page has them in its address. columns: those that it shows; left out: as many as there is room for."""

    of_list: ListWord
    filter: Annotated[dict[Annotated[str, Meta(min_length=1, max_length=40)], FilterText], Meta(max_length=20)] = {}
    columns: Annotated[list[ColumnName], Meta(max_length=20)] = []


class ViewView(msgspec.Struct, omit_defaults=True, rename={"of_list": "list"}):
    """A saved view of a list."""

    name: str
    of_list: ListWord
    version: int
    created_at: datetime
    changed_at: datetime
    changed_by: str
    filter: dict[str, str] = {}
    columns: list[str] = []


class ViewList(msgspec.Struct):
    views: list[ViewView]
    next: str | None = None
