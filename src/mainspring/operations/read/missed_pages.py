"""Pages of missed fires of all jobs, newest first.

A filter may match few of very many. So they are read a stretch at a time, and the whole page has a budget of time. When
that is over, the page ends where it has looked. It may then be short or even empty, and `next` continues there.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store import missed_fires
from mainspring.store.missed_fires import Boundary, MissedOfJob
from mainspring.store.pool import Connection

_MOST_AT_A_TIME = 10_000


class MissedFilter(msgspec.Struct, frozen=True):
    """`text`: a part of the name or the id of the job."""

    job: str | None = None
    reason: str | None = None
    text: str | None = None

    @property
    def sparse(self) -> bool:
        """Whether no index has what it matches."""
        return self.job is None and (self.reason is not None or self.text is not None)


class FoundMissed(msgspec.Struct):
    """The ranges of a page, and one more if there are more. `reached`: the last one that was read, if the time was over
    before that."""

    ranges: list[MissedOfJob]
    reached: Boundary | None = None


async def find_missed(
    connection: Connection,
    tenant: TenantId,
    asked: MissedFilter,
    before: int | None,
    limit: int,
    over: Callable[[], bool],
    first: int,
) -> FoundMissed:
    """The newest ranges before `before`. `first`: how many are read before `over` is called."""
    found: list[MissedOfJob] = []
    count = first
    while True:
        end = await missed_fires.boundary(connection, tenant, before, count) if asked.sparse else None
        wanted, floor = limit - len(found), None if end is None else end.missed_id
        came = await missed_fires.page(connection, tenant, before, asked.job, asked.reason, wanted, asked.text, floor)
        found += came
        if end is None or len(came) >= wanted:
            return FoundMissed(found)
        if over():
            return FoundMissed(found, end)
        before, count = end.missed_id, min(4 * count, _MOST_AT_A_TIME)
