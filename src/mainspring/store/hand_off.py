"""Fresh runs that are stored as claimed by workers that wait."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store import arrays
from mainspring.store.claimed_runs import ClaimedRun
from mainspring.store.exchange_groups import LaneHead
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.runs import NewRuns

_SQL = load("hand_off")
_BEFORE = 2  # columns of the result before those of a claimed run


class HandOffTaker(msgspec.Struct, frozen=True):
    """An exchange that waits. `again`: it has taken its number before."""

    worker_id: UUID
    tenant: TenantId
    seq: int
    again: bool


async def hand_off_runs(
    connection: Connection,
    tenant: TenantId,
    new: NewRuns,
    places: Sequence[int | None],
    takers: Sequence[HandOffTaker],
    lanes: Sequence[LaneHead],
    revision: int,
    created_by: UUID | None,
) -> dict[UUID, list[ClaimedRun]]:
    """Insert runs, and return those that were handed off, by worker. The others are QUEUED. `places`: the taker of each
    run, from 0 on. Each taker has one at least, and no two are of one worker. `lanes`: where the takers take from.
    `revision`: that of the gates by which they were chosen. Raises RuntimeError if the counts of what was written
    differ."""
    rows = await connection.fetch(
        _SQL["hand_off_runs"],
        tenant,
        *new.columns,
        [None if place is None else place + 1 for place in places],
        arrays.of_uuids(taker.worker_id for taker in takers),
        [taker.tenant for taker in takers],
        [taker.seq for taker in takers],
        [taker.again for taker in takers],
        revision,
        [lane_id for lane_id, _, _ in lanes],
        [bound for _, _, bound in lanes],
        created_by,
    )
    found: dict[UUID, list[ClaimedRun]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(ClaimedRun(*row[_BEFORE:]))
    if rows and rows[0][1] != len(found):
        raise RuntimeError(f"runs were handed to {len(found)} exchanges, and {rows[0][1]} took their number")
    return found
