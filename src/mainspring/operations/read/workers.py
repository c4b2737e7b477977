"""Reads workers: those that are live, and those that ended within the last hour."""

from __future__ import annotations

from mainspring.operations.access.caller import Caller
from mainspring.operations.paging.search import searching
from mainspring.operations.read.views import worker_view
from mainspring.store import workers
from mainspring.store.pages import cut
from mainspring.store.pool import Store
from mainspring.wire.runs import WorkerList

_MOST = 1000


class WorkerReader:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def workers(self, caller: Caller) -> WorkerList:
        """A list has 1,000 workers at most, the live ones first. Large fields are left out of it."""
        async with searching(self._store, caller.tenant, "workers") as connection:
            rows = await workers.list_workers(connection, caller.tenant, _MOST + 1)
        page, more = cut(rows, _MOST)
        return WorkerList([worker_view(row) for row in page], more)
