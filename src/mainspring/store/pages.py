"""Pages of rows whose payloads and results may be large: bounded in number and in bytes.

A payload has up to 256 KiB, so a page of 1,000 rows could be 256 MB, on the wire and in the memory of a server. A page
ends early when it has grown large: nothing is left out of a row, and whoever wants more asks for the next page anyway.

Nor does a page read more rows than it shows, where an index has them in the page's order. The planner cannot be trusted
with that: on a table that was analysed when it was empty it takes a condition on the tenant for one that leaves a few
rows, and sorts what it believes to be few; measured, 20,000 rows for a page of 51. So a page is planned for its own
arguments, and `straight` leaves the planner nothing but the walk along the index. Runs have no index by tenant, which
would cost every run: in a database with several, a tenant that has few walks past those of the others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import starmap
from typing import Any, TypeVar

from mainspring.store.pool import Connection
from mainspring.store.rows import PageRow, RowQuery

Row = TypeVar("Row", bound=PageRow)

PAGE_BYTES = 4 * 1024 * 1024
_AT_A_TIME = 32
_OTHER_WAYS = ("enable_seqscan", "enable_bitmapscan", "enable_sort")
_PLANNED = "set local plan_cache_mode = force_custom_plan"
_STRAIGHT = "; ".join([_PLANNED, *(f"set local {name} = off" for name in _OTHER_WAYS)])
_AS_BEFORE = "; ".join(f"set local {name} to default" for name in ("plan_cache_mode", *_OTHER_WAYS))


async def read(connection: Connection, query: RowQuery[Row], *arguments: Any, straight: bool = False) -> list[Row]:
    """The rows of `query`, whose last parameter is the most that are wanted; no more are read than `cut` could use.
    `straight`: nearly every row that an index offers, in this order, is wanted."""
    if arguments[-1] == 1 and not straight:
        return await query.fetch(connection, *arguments)
    rows: list[Row] = []
    grown = last = 0
    async with _planned(connection, straight=straight):
        cursor = await connection.cursor(query.sql, *arguments)
        while grown - last <= PAGE_BYTES and (some := list(starmap(query.row, await cursor.fetch(_AT_A_TIME)))):
            rows += some
            last = some[-1].weight
            grown += sum(row.weight for row in some)
    return rows


@asynccontextmanager
async def _planned(connection: Connection, *, straight: bool) -> AsyncIterator[None]:
    """A transaction in which statements are planned like that; in one that is under way, until the end of the block."""
    settings = _STRAIGHT if straight else _PLANNED
    if not connection.is_in_transaction():
        async with connection.transaction():
            await connection.execute(settings)
            yield
        return
    await connection.execute(settings)
    yield
    await connection.execute(_AS_BEFORE)


def cut(rows: Sequence[Row], limit: int) -> tuple[list[Row], bool]:
    """The rows of one page, at least one if there is any; and whether others follow. A row that passes PAGE_BYTES is
    its last."""
    page: list[Row] = []
    grown = 0
    for row in rows[:limit]:
        if grown > PAGE_BYTES:
            return page, True
        page.append(row)
        grown += row.weight
    return page, len(rows) > len(page)
