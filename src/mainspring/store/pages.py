"""Pages of rows whose payloads and results may be large: bounded in number, in bytes and in time (searches.py).

A payload has up to 256 KiB, so a page of 1,000 rows could have 256 MB, on the wire and in the memory of a server. A
page that has grown large ends early. Its rows are complete, and the client asks for the next page.

A page does not read more rows than it shows if an index has them in the order of the page. The planner does not ensure
this. If a table was analysed while it was empty, the planner expects few rows for a tenant and sorts them; measured,
20,000 rows for a page of 51. So a page is planned for its own arguments, and `straight` only allows a scan along the
index. Runs have no index by tenant, because it would cost time for every run. So in a database with several tenants,
the scan for a tenant with few runs also reads runs of other tenants.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import starmap
from typing import Any, TypeVar

import asyncpg

from mainspring.store.pool import READ_SETTINGS, Connection
from mainspring.store.rows import PageRow, RowQuery
from mainspring.store.searches import SECONDS, SearchTooSlow

Row = TypeVar("Row", bound=PageRow)

PAGE_BYTES = 4 * 1024 * 1024
_FIRST = 8  # rows; they show how large the rows are
_MOST_AT_A_TIME = 256
_OTHER_PLANS = ("enable_seqscan", "enable_bitmapscan", "enable_sort")
_PLANNED = f"set local plan_cache_mode = force_custom_plan; set local statement_timeout = {round(SECONDS * 1000)}"
_STRAIGHT = "; ".join([_PLANNED, *(f"set local {name} = off" for name in _OTHER_PLANS)])
_BY_TIME = (
    "set local plan_cache_mode = force_custom_plan; set local statement_timeout = 500; "
    "set local enable_bitmapscan = on; set local enable_indexscan = off"
)
# A statement names the times of blocks one by one: the index of the times of each partition finds them.
_BY_BLOCK = f"{_PLANNED}; set local enable_indexscan = off; set local enable_seqscan = off"
_RESET = "; ".join(
    [
        *(f"set local {name} to default" for name in ("plan_cache_mode", "enable_indexscan", *_OTHER_PLANS)),
        f"set local statement_timeout = '{READ_SETTINGS['statement_timeout']}'",
    ]
)


async def read(
    connection: Connection, query: RowQuery[Row], *arguments: Any, straight: bool = False, by_time: bool = False
) -> list[Row]:
    """The rows of `query`, whose last parameter is the row limit. No more rows are read than `cut` can use. `straight`:
    an index has the rows in this order, and the page needs nearly all of them. `by_time`: the BRIN index of their times
    finds them. Raises SearchTooSlow."""
    if arguments[-1] == 1 and not straight:
        return await query.fetch(connection, *arguments)
    try:
        return await _read(connection, query, *arguments, straight=straight, by_time=by_time)
    except asyncpg.QueryCanceledError as error:
        raise SearchTooSlow(SECONDS) from error


async def _read(
    connection: Connection, query: RowQuery[Row], *arguments: Any, straight: bool, by_time: bool
) -> list[Row]:
    rows: list[Row] = []
    grown = last = 0
    wanted = _FIRST
    async with planned(connection, straight=straight, by_time=by_time):
        cursor = await connection.cursor(query.sql, *arguments)
        while grown - last <= PAGE_BYTES and (some := list(starmap(query.row, await cursor.fetch(wanted)))):
            rows += some
            last = some[-1].weight
            grown += sum(row.weight for row in some)
            wanted = max(1, min(_MOST_AT_A_TIME, (PAGE_BYTES - grown) * len(rows) // max(1, grown)))
    return rows


async def place(connection: Connection, sql: str, *arguments: Any) -> Any:
    """One row along an index: the place where a page ends. None if there is none. Raises SearchTooSlow."""
    try:
        async with planned(connection, straight=True):
            return await connection.fetchrow(sql, *arguments)
    except asyncpg.QueryCanceledError as error:
        raise SearchTooSlow(SECONDS) from error


@asynccontextmanager
async def planned(
    connection: Connection, *, straight: bool = False, by_time: bool = False, by_block: bool = False
) -> AsyncIterator[None]:
    """Plan statements like that until the end of the block, in a new transaction or the current one."""
    settings = _BY_BLOCK if by_block else _BY_TIME if by_time else _STRAIGHT if straight else _PLANNED
    if not connection.is_in_transaction():
        async with connection.transaction():
            await connection.execute(settings)
            yield
        return
    await connection.execute(settings)
    yield
    await connection.execute(_RESET)


def cut(rows: Sequence[Row], limit: int) -> tuple[list[Row], bool]:
    """The rows of one page, and whether others follow. A page has at least one row if there is any. It ends with the
    row that exceeds PAGE_BYTES."""
    page: list[Row] = []
    grown = 0
    for row in rows[:limit]:
        if grown > PAGE_BYTES:
            return page, True
        page.append(row)
        grown += row.weight
    return page, len(rows) > len(page)
