"""How many objects a filter matches: exact up to 100,000, then estimated by the planner."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.bulk.filters import dead_letter_query, field_in_filter, job_query, run_query
from mainspring.operations.bulk.selector import CANCEL, FAR, BulkRequest, Selector
from mainspring.operations.paging.search import search_in_words
from mainspring.operations.read.dead_letters import dead_letter_filter
from mainspring.operations.read.job_pages import fired_states, row_filter
from mainspring.operations.read.jobs import wanted_jobs
from mainspring.operations.read.runs import wanted_runs
from mainspring.store import dead_letters, history, jobs
from mainspring.store.counts import BOUND, Count
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import Store
from mainspring.store.searches import SearchTooSlow
from mainspring.wire.bulk import Counted, DeadLettersFilter, JobsFilter, RunsFilter

_WALKED = 10_000  # jobs that are counted page by page
_PAGE = 1000
_BUDGET = 2.0  # seconds for that
_EXAMPLES = 10


class Counter:
    def __init__(self, store: Store, lanes: LaneRegistry, selector: Selector) -> None:
        self._store = store
        self._lanes = lanes
        self._selector = selector

    async def count(self, request: BulkRequest) -> Counted:
        """The number, and some of them."""
        with field_in_filter():
            match request.filter:
                case JobsFilter():
                    number, exact = await self._jobs(request, request.filter)
                case RunsFilter():
                    number, exact = await self._runs(request, request.filter)
                case DeadLettersFilter():
                    number, exact = await self._dead_letters(request, request.filter)
        examples = await self._selector.some(request, None, _EXAMPLES) if number else None
        return Counted(number, exact, [] if examples is None else examples.ids)

    async def _jobs(self, request: BulkRequest, chosen: JobsFilter) -> tuple[int, bool]:
        tenant, query = request.caller.tenant, job_query(chosen, None, None, _PAGE)
        wanted = await wanted_jobs(self._lanes, request.caller, query)
        rows, fired = row_filter(wanted), any(fired_states(wanted))
        if wanted.latest is None and wanted.schedule_types is None and not rows.missed and not fired:
            with search_in_words("jobs", query), suppress(SearchTooSlow):
                return await self._exact(request, [jobs.count_of(tenant, rows)])
        return await self._walk(request)

    async def _walk(self, request: BulkRequest) -> tuple[int, bool]:
        """Count page by page what no single statement decides. Not exact: there are at least so many."""
        number, place, budget = 0, None, TimeSlices(_BUDGET)
        while True:
            some = await self._selector.some(request, place, _PAGE)
            number, place = number + len(some.ids), some.place
            if place is None or number >= _WALKED or budget.over:
                return number, place is None

    async def _runs(self, request: BulkRequest, chosen: RunsFilter) -> tuple[int, bool]:
        tenant, query = request.caller.tenant, run_query(chosen, None)
        counts = []
        asked, _ = await wanted_runs(self._store, self._lanes, request.caller, query)
        for one in asked:
            if request.verb == CANCEL and one.live_states != []:
                counts.append(history.count_live(tenant, one))
            if request.verb != CANCEL and one.ended_states != []:
                counts.append(history.count_ended(tenant, one))
        with search_in_words("runs", query):
            return await self._exact(request, counts)

    async def _dead_letters(self, request: BulkRequest, chosen: DeadLettersFilter) -> tuple[int, bool]:
        query = dead_letter_query(chosen)
        wanted = await dead_letter_filter(self._lanes, request.caller, query)
        count = dead_letters.count_of(request.caller.tenant, wanted, FAR)
        with search_in_words("dead letters", query):
            return await self._exact(request, [count])

    async def _exact(self, request: BulkRequest, counts: Sequence[Count]) -> tuple[int, bool]:
        """Raises SearchTooSlow."""
        async with self._store.search(request.caller.tenant) as connection:
            numbers = [await count.exact(connection) for count in counts]
            exact = [number for number in numbers if number is not None]
            if len(exact) == len(counts) and sum(exact) <= BOUND:
                return sum(exact), True
            estimates = [await count.estimate(connection) for count in counts]
        return max(BOUND + 1, sum(estimates)), False
