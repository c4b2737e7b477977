"""Pages of rows whose payloads and results may be large: bounded in number and in bytes.

A payload has up to 256 KiB, so a page of 1,000 rows could be 256 MB, on the wire and in the memory of a server. A page
ends early when it has grown large: nothing is left out of a row, and whoever wants more asks for the next page anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mainspring.store.pool import Connection, Record

PAGE_BYTES = 4 * 1024 * 1024
_AT_A_TIME = 32
_LARGE = ("payload_text", "result_text", "spec", "error", "last_error")


def weight(row: Record) -> int:
    """About how many bytes a row has: its large values, in characters."""
    return sum(len(row.get(name) or "") for name in _LARGE)


async def read(connection: Connection, query: str, *arguments: Any) -> list[Record]:
    """The rows of `query`, whose last parameter is the most that are wanted; no more are read than `cut` could use."""
    rows: list[Record] = []
    if arguments[-1] <= _AT_A_TIME:
        rows += await connection.fetch(query, *arguments)
        return rows
    grown = last = 0
    async with connection.transaction():
        cursor = await connection.cursor(query, *arguments)
        while grown - last <= PAGE_BYTES and (some := await cursor.fetch(_AT_A_TIME)):
            rows += some
            grown, last = grown + sum(map(weight, some)), weight(some[-1])
    return rows


def cut(rows: Sequence[Record], limit: int) -> tuple[list[Record], bool]:
    """The rows of one page, at least one if there is any; and whether others follow. A row that passes PAGE_BYTES is
    its last."""
    page: list[Record] = []
    grown = 0
    for row in rows[:limit]:
        if grown > PAGE_BYTES:
            return page, True
        page.append(row)
        grown += weight(row)
    return page, len(rows) > len(page)
