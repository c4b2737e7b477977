"""Rows as structs. The store decodes a row once, and the code above it sees typed attributes.

One rule holds for every query that has a row type: its columns are the fields of the struct, by name and in order. A
row is built by position, `Row(*record)`, without a lookup of names. tests/store/test_rows.py prepares every `RowQuery`
and compares names, order and types, so a query that differs from its struct fails there and not in production. Column
lists that several queries share are fragments (sql/fragments.sql). A function that converts what it reads (sets,
decoded labels, dicts by key) unpacks the record instead.

JSON columns are cast to text in the query and have names that end in `_text`. A query lists its columns: `r.*` beside a
cast would send the same value twice.
"""

from __future__ import annotations

from itertools import starmap
from typing import Any, Generic, TypeVar

import msgspec

from mainspring.store.pool import Connection

Row = TypeVar("Row", bound=msgspec.Struct)


class PageRow(msgspec.Struct, frozen=True):
    """A row of a list that is read page by page (store/pages.py)."""

    @property
    def weight(self) -> int:
        """The approximate size of the row: its large values, in bytes."""
        return 0


def size_of(*texts: str | None) -> int:
    """The bytes of these texts."""
    return sum(len(text) if text.isascii() else len(text.encode(errors="replace")) for text in texts if text)


class RowQuery(Generic[Row]):
    """A query and the struct of its rows."""

    __slots__ = ("row", "sql")

    def __init__(self, row: type[Row], sql: str) -> None:
        self.row = row
        self.sql = sql
        ROW_QUERIES.append(self)

    async def fetch(self, connection: Connection, *arguments: Any) -> list[Row]:
        return list(starmap(self.row, await connection.fetch(self.sql, *arguments)))

    async def first(self, connection: Connection, *arguments: Any) -> Row | None:
        record = await connection.fetchrow(self.sql, *arguments)
        return None if record is None else self.row(*record)


ROW_QUERIES: list[RowQuery[Any]] = []
