"""Counts of what a filter matches: exact up to a bound and as long as the time allows, or else the planner's
estimate."""

from __future__ import annotations

from typing import Any

import msgspec

from mainspring.store.pages import planned
from mainspring.store.pool import Connection

BOUND = 100_000
_ALL = 2**31 - 1


class Count(msgspec.Struct, frozen=True):
    """A statement whose last parameter is the largest number that it counts to."""

    sql: str
    arguments: tuple[Any, ...]

    async def exact(self, connection: Connection, bound: int = BOUND) -> int | None:
        """The number, or None if it is above the bound."""
        async with planned(connection, straight=False):
            number: int = await connection.fetchval(self.sql, *self.arguments, bound + 1)
        return number if number <= bound else None

    async def estimate(self, connection: Connection) -> int:
        """About how many there are, from the statistics of the planner."""
        plan = await connection.fetchval(f"explain (format json) {self.sql}", *self.arguments, _ALL)
        (found,) = msgspec.json.decode(plan)
        return int(found["Plan"]["Plans"][0]["Plan Rows"])
