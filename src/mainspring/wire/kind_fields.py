"""The fields of our own kinds of task, for type checkers and editors. Structs get them from the registry of kinds
(wire/field_structs.py); tests/kinds/test_registry.py compares both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from mainspring.kinds.http.call import HttpCall
from mainspring.kinds.sql.call import SqlCall


class ShownCalls:
    """The calls that are stored in the setup of a run and shown in the view of a job. At most one is given."""

    __slots__ = ()

    http: HttpCall | None
    sql: SqlCall | None


class KindKeywords(TypedDict, total=False):
    """What a job runs, as Python code gives it."""

    command: str | Sequence[str] | None
    http: Mapping[str, Any] | None
    sql: Mapping[str, Any] | None
