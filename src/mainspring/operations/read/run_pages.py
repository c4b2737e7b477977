"""Pages of runs, newest first, live and ended ones together.

A filter may match few of many millions of runs, and no index has them: it would cost time for every run. So runs are
read a stretch at a time, and the whole page has a budget of time. When that is over, the page ends where it has looked.
It may then be short or even empty, and `next` continues there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

import msgspec

from mainspring.domain.transitions import ENDED, StoredState
from mainspring.kernel.ids import TenantId
from mainspring.store import fired_jobs, history
from mainspring.store.fired_jobs import RANKS, FiredFilter
from mainspring.store.history import Run, RunFilter
from mainspring.store.pages import PAGE_BYTES
from mainspring.store.pool import Connection

_MOST_AT_A_TIME = 10_000
_MOST_UNSUCCESSFUL = 2500  # they lie far apart
_UNSUCCESSFUL = sorted(int(state) for state in ENDED - {StoredState.SUCCESS})


class FoundPage(msgspec.Struct):
    """The runs of a page, and one more if there are more. `reached`: the last run that was read, if the time was
    over before that."""

    runs: list[Run]
    reached: UUID | None = None


async def find_runs(
    connection: Connection,
    tenant: TenantId,
    asked: Sequence[RunFilter],
    before: UUID | None,
    limit: int,
    over: Callable[[], bool],
    first: int,
    *,
    light: bool = False,
) -> FoundPage:
    """The newest runs before `before` that match one of the filters. `first`: how many are read before `over` is
    called. The filters have the same states. `light`: without payloads and results."""
    asked = [_with_error(one) for one in asked]
    if not all(map(_sparse, asked)):
        return FoundPage(await _read(connection, tenant, asked, before, None, limit, light=light))
    states = asked[0]
    ends = FiredFilter(
        ranks=[] if states.live_states == [] else [RANKS["SCHEDULED"]],
        states=sorted(map(int, ENDED)) if states.ended_states is None else states.ended_states,
    )
    found: list[Run] = []
    count = first
    while True:
        floor = await fired_jobs.boundary(connection, ends, before, count)
        wanted = limit - len(found)
        came = await _read(connection, tenant, asked, before, floor, wanted, light=light)
        found += came
        if floor is None or len(came) >= wanted:
            return FoundPage(found)
        if over() or sum(run.weight for run in found) > PAGE_BYTES:
            return FoundPage(found, floor)
        before, count = floor, min(4 * count, _MOST_UNSUCCESSFUL if ends.unsuccessful_only else _MOST_AT_A_TIME)


def _with_error(asked: RunFilter) -> RunFilter:
    """No run that succeeded has an error, and the others have an index."""
    if asked.error is None or asked.ended_states is not None:
        return asked
    return msgspec.structs.replace(asked, ended_states=_UNSUCCESSFUL)


def _sparse(asked: RunFilter) -> bool:
    """Whether no index has the runs of this filter. With a time, only the days since then are read."""
    known = (asked.job_id, asked.own, asked.since, asked.created_after)
    rare = (asked.lane_ids, asked.label, asked.error, asked.generation, asked.worker_id)
    return all(each is None for each in known) and any(each is not None for each in rare)


async def _read(
    connection: Connection,
    tenant: TenantId,
    asked: Sequence[RunFilter],
    before: UUID | None,
    floor: UUID | None,
    limit: int,
    *,
    light: bool,
) -> list[Run]:
    found: list[Run] = []
    for one in asked:
        if one.live_states is None or one.live_states:
            found += await history.live_runs(connection, tenant, one, before, limit, floor, light=light)
        if one.ended_states is None or one.ended_states:
            found += await history.ended_runs(connection, tenant, one, before, limit, floor, light=light)
    return history.newest_first(found, limit)
