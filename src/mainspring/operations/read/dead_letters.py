"""Reads dead letters, one or lists of them. These are runs that failed for good."""

from __future__ import annotations

from uuid import UUID

from mainspring.domain.errors import NotFound
from mainspring.operations.access.caller import Caller
from mainspring.operations.lookup import chosen_lanes, labels_within, load_lane
from mainspring.operations.paging.cursors import encode_cursor, run_cursor
from mainspring.operations.paging.search import DeadLetterQuery, searching
from mainspring.operations.read.timeline import attempt_views, workers_in
from mainspring.operations.read.views import dead_letter_view
from mainspring.store import dead_letters, history
from mainspring.store.dead_letters import DeadLetterFilter
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pages import cut
from mainspring.store.pool import Store
from mainspring.wire.runs import DeadLetterList, DeadLetterView


class DeadLetterReader:
    def __init__(self, store: Store, lanes: LaneRegistry) -> None:
        self._store = store
        self._lanes = lanes

    async def dead_letters(self, caller: Caller, query: DeadLetterQuery) -> DeadLetterList:
        """Newest first."""
        chosen = await dead_letter_filter(self._lanes, caller, query)
        before, limit = run_cursor(query.cursor), query.limit
        async with searching(self._store, caller.tenant, "dead letters", query) as connection:
            page, more = cut(await dead_letters.page(connection, caller.tenant, chosen, before, limit + 1), limit)
            views = [
                dead_letter_view(letter, await load_lane(self._lanes, connection, letter.lane_id)) for letter in page
            ]
        return DeadLetterList(views, encode_cursor(str(page[-1].run_id)) if more else None)

    async def dead_letter(self, caller: Caller, run_id: UUID) -> DeadLetterView:
        """One dead letter, with the error of every attempt that the history still has."""
        async with self._store.reads.acquire() as connection:
            letter = await dead_letters.get(connection, caller.tenant, run_id)
            if letter is None:
                raise NotFound(f"there is no dead letter {run_id}", hint="see GET /v1/dead-letters")
            attempts = await history.attempts_of(connection, run_id)
            ended = await history.ended_run(connection, caller.tenant, run_id)
            names = await history.worker_names(connection, workers_in(attempts, ended))
            lane = await load_lane(self._lanes, connection, letter.lane_id)
        return dead_letter_view(letter, lane, attempt_views(attempts, ended, names))


async def dead_letter_filter(lanes: LaneRegistry, caller: Caller, query: DeadLetterQuery) -> DeadLetterFilter:
    """The filter of the store for a query."""
    lane_ids = await chosen_lanes(lanes, caller, query.queue, query.task)
    return DeadLetterFilter(query.job, lane_ids, query.error, query.since, query.until, labels_within(caller))
