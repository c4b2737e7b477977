"""Reads workers: those that are live, and those that ended within the last hour."""

from __future__ import annotations

from mainspring.operations.access.caller import Caller
from mainspring.operations.read.views import worker_view
from mainspring.store import workers
from mainspring.store.pool import Store
from mainspring.wire.runs import WorkerList


class WorkerReader:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def workers(self, caller: Caller) -> WorkerList:
        async with self._store.reads.acquire() as connection:
            return WorkerList([worker_view(row) for row in await workers.list_workers(connection, caller.tenant)])
