"""Pages of runs, newest first, live and ended ones together.

A filter may match few of many millions of runs, and no index has them: it would cost time for every run. So runs are
read a stretch at a time, and the whole page has a budget of time. When that is over, the page ends where it has looked.
It may then be short or even empty, and `next` continues there.

The rollups tell in which hours runs of a task or of a queue ended. If these are few, only they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from mainspring.domain.rollups import KEPT, Span, floor_to
from mainspring.domain.transitions import ENDED, StoredState
from mainspring.kernel.ids import TenantId, first_uuid7
from mainspring.store import fired_jobs, history, rollups
from mainspring.store.fired_jobs import RANKS, FiredFilter
from mainspring.store.history import Run, RunFilter
from mainspring.store.pages import PAGE_BYTES
from mainspring.store.pool import Connection
from mainspring.store.searches import SECONDS, SearchTooSlow

_MOST_AT_A_TIME = 10_000
_MOST_UNSUCCESSFUL = 2500  # they lie far apart
_MOST_HOURS = 24  # in which runs of a rare task ended: each is read as a whole
_MOST_RARE = 10_000
_HOUR = timedelta(hours=1)
_FRESH = timedelta(minutes=10)  # what is not in the rollups yet is read as a whole
_UNSUCCESSFUL = sorted(int(state) for state in ENDED - {StoredState.SUCCESS})


class EndedSpans(msgspec.Struct, frozen=True):
    """When runs ended, newest first. No other run has ended since `known_since`."""

    spans: list[tuple[datetime, datetime]]
    known_since: datetime


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
    if not all(map(is_sparse, asked)):
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


async def spans_with_ends(
    connection: Connection, tenant: TenantId, task: str | None, queue: str | None
) -> EndedSpans | None:
    """The hours in which runs of a task or a queue ended, as the rollups tell, and what is not in the rollups yet. None
    if there are many: then a search finds some soon."""
    watermark = await rollups.watermark(connection)
    now: datetime = await connection.fetchval("select clock_timestamp()")
    if watermark is None or now - watermark > _FRESH:
        return None
    hours = await rollups.hours_with_ends(connection, tenant, task, queue, _MOST_HOURS + 1)
    if len(hours) > _MOST_HOURS or sum(hour.ended for hour in hours) > _MOST_RARE:
        return None
    minute = floor_to(watermark, timedelta(minutes=1))  # the rollups of hours have the minutes that are over
    spans = [(minute, minute + timedelta(days=1))]
    for hour in hours:
        end = min(hour.at + _HOUR, minute)
        if end == spans[-1][0]:
            spans[-1] = (hour.at, spans[-1][1])
        elif hour.at < end:
            spans.append((hour.at, end))
    return EndedSpans(spans, watermark - KEPT[Span.HOUR] + _HOUR)


async def find_rare_runs(
    connection: Connection,
    tenant: TenantId,
    asked: Sequence[RunFilter],
    before: UUID | None,
    limit: int,
    over: Callable[[], bool],
    ends: EndedSpans,
    *,
    light: bool = False,
) -> FoundPage | None:
    """As `find_runs`, but of ended runs only these spans of time are read. None if that takes too long."""
    asked = [_with_error(one) for one in asked]
    try:
        async with connection.transaction():
            found = await _live_runs(connection, tenant, asked, before, limit, over, light=light)
            for span in ends.spans:
                for one in asked:
                    if one.ended_states is None or one.ended_states:
                        found += await history.ended_between(connection, tenant, one, before, span, limit, light=light)
                if over():
                    return None
    except SearchTooSlow:
        return None
    newest = history.newest_first(found, limit)
    oldest = first_uuid7(ends.known_since)  # a run that was created since then has ended since then
    all_ends = FiredFilter(ranks=[], states=sorted(map(int, ENDED)))
    if await fired_jobs.boundary(connection, all_ends, oldest, 0) is None:
        return FoundPage(newest)
    if before is not None and before <= oldest:
        return None
    certain = [run for run in newest if run.run_id >= oldest]
    return FoundPage(certain, None if len(certain) >= limit else oldest)


async def _live_runs(
    connection: Connection,
    tenant: TenantId,
    asked: Sequence[RunFilter],
    before: UUID | None,
    limit: int,
    over: Callable[[], bool],
    *,
    light: bool,
) -> list[Run]:
    """The newest live runs. Raises SearchTooSlow if the time is over."""
    wanted = [one for one in asked if one.live_states is None or one.live_states]
    all_live, found = FiredFilter(ranks=[RANKS["SCHEDULED"]], states=[]), list[Run]()
    while wanted and len(found) < limit:
        floor = await fired_jobs.boundary(connection, all_live, before, _MOST_AT_A_TIME)
        for one in wanted:
            found += await history.live_runs(connection, tenant, one, before, limit, floor, light=light)
        if floor is None:
            break
        if over():
            raise SearchTooSlow(SECONDS)
        before = floor
    return found


def _with_error(asked: RunFilter) -> RunFilter:
    """No run that succeeded has an error, and the others have an index."""
    if asked.error is None or asked.ended_states is not None:
        return asked
    return msgspec.structs.replace(asked, ended_states=_UNSUCCESSFUL)


def is_sparse(asked: RunFilter) -> bool:
    """Whether no index has the runs of this filter. With a time, only the days since then are read."""
    known = (asked.job_id, asked.own, asked.since, asked.created_after)
    rare = (
        asked.lane_ids, asked.label, asked.payload or None, asked.error, asked.generation, asked.worker_id,
        asked.created_by, asked.within,
    )  # fmt: skip
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
