"""Selects the next objects of an operation, page by page, by its ids or by its filter.

The filter is evaluated when a page is read: an object that no longer matches is not selected. Jobs and runs are
selected newest first, dead letters oldest first. Objects that were created after the operation are not selected. They
sort before the cursor of the next page, so no object is selected twice.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.domain.bulk import Target
from mainspring.kernel.ids import TenantId
from mainspring.operations.access.caller import Caller
from mainspring.operations.bulk.filters import dead_letter_query, field_in_filter, job_query, run_query
from mainspring.operations.paging.search import searching
from mainspring.operations.read.dead_letters import dead_letter_filter
from mainspring.operations.read.jobs import JobReader
from mainspring.operations.read.runs import ONE_SNAPSHOT, RunReader, wanted_runs
from mainspring.store import dead_letters, history
from mainspring.store.history import EndedRun, Run, RunFilter
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pages import cut
from mainspring.store.pool import Connection, Store
from mainspring.wire.bulk import AnyFilter, DeadLettersFilter, JobsFilter, RunsFilter

FAR = datetime.fromisoformat("9999-01-01T00:00:00Z")
CANCEL = "cancel"


class Selection(msgspec.Struct, frozen=True):
    """Some objects. `place` is the cursor of the next page; None if no page follows."""

    ids: list[str]
    place: str | None


class BulkRequest(msgspec.Struct, frozen=True):
    """A verb and the filter of its objects. Objects that were created after `begun` are left out. `begun` is None while
    the objects are only counted."""

    caller: Caller
    target: Target
    verb: str
    filter: AnyFilter
    begun: datetime | None = None


class Selector:
    def __init__(self, store: Store, lanes: LaneRegistry) -> None:
        self._store = store
        self._lanes = lanes
        self._jobs = JobReader(store, lanes, RunReader(store, lanes))

    async def some(self, request: BulkRequest, place: str | None, limit: int) -> Selection:
        """The next objects from `place` on, at most `limit`. The page may be empty although more pages follow."""
        with field_in_filter():
            match request.filter:
                case JobsFilter():
                    page = await self._jobs.jobs(request.caller, job_query(request.filter, request.begun, place, limit))
                    return Selection([job.job_id for job in page.jobs], page.next)
                case RunsFilter():
                    return await self._runs(request, request.filter, place, limit)
                case DeadLettersFilter():
                    return await self._dead_letters(request, request.filter, place, limit)

    async def _runs(self, request: BulkRequest, chosen: RunsFilter, place: str | None, limit: int) -> Selection:
        tenant, query = request.caller.tenant, run_query(chosen, request.begun)
        before = None if place is None else UUID(place)
        asked, _ = await wanted_runs(self._store, self._lanes, request.caller, query)
        found: list[Run] = []
        async with searching(self._store, tenant, "runs", query, ONE_SNAPSHOT) as connection:
            for one in asked:
                found += await _matching(connection, tenant, one, request.verb, before, limit + 1)
        page, more = cut(history.newest_first(found, limit + 1), limit)
        ids = [str(run.run_id) for run in page if not _ended_later(run, request.begun)]
        return Selection(ids, str(page[-1].run_id) if more else None)

    async def _dead_letters(
        self, request: BulkRequest, chosen: DeadLettersFilter, place: str | None, limit: int
    ) -> Selection:
        tenant, query = request.caller.tenant, dead_letter_query(chosen)
        after = None if place is None else UUID(place)
        wanted = await dead_letter_filter(self._lanes, request.caller, query)
        async with searching(self._store, tenant, "dead letters", query) as connection:
            ids = await dead_letters.some(connection, tenant, wanted, after, request.begun or FAR, limit)
        return Selection([str(run_id) for run_id in ids], str(ids[-1]) if len(ids) == limit else None)


def by_ids(ids: list[str], place: str | None, limit: int) -> Selection:
    """The next of the given ids."""
    first = 0 if place is None else int(place)
    last = first + limit
    return Selection(ids[first:last], str(last) if last < len(ids) else None)


async def _matching(
    connection: Connection, tenant: TenantId, chosen: RunFilter, verb: str, before: UUID | None, limit: int
) -> list[Run]:
    """Runs are cancelled while they live, and repeated after they have ended."""
    if verb == CANCEL:
        none = chosen.live_states == []
        return [] if none else [*await history.live_runs(connection, tenant, chosen, before, limit)]
    none = chosen.ended_states == []
    return [] if none else [*await history.ended_runs(connection, tenant, chosen, before, limit)]


def _ended_later(run: Run, begun: datetime | None) -> bool:
    return begun is not None and isinstance(run, EndedRun) and run.ended_at > begun
