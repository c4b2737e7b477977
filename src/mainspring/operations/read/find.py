"""Finds things by the beginning of their names, and runs by the beginning or the end of their ids."""

from __future__ import annotations

from collections.abc import Iterable

from mainspring.domain.errors import InvalidInput
from mainspring.operations.access.caller import Caller
from mainspring.operations.paging.search import searching
from mainspring.operations.read.ids import RUN, IdQuery, IdReader
from mainspring.operations.signatures.signature_registry import SignatureRegistry
from mainspring.store import ids, workers
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import Store
from mainspring.wire.checks import Match, Matches
from mainspring.wire.ids import SHORTEST_PART

MOST = 8  # of each kind
_LONGEST = 200
_WORKERS = 1000
_DIGITS = frozenset("0123456789abcdef-")


class Finder:
    def __init__(self, store: Store, lanes: LaneRegistry, signatures: SignatureRegistry, id_reader: IdReader) -> None:
        self._store = store
        self._lanes = lanes
        self._signatures = signatures
        self._ids = id_reader

    async def find(self, caller: Caller, text: str) -> Matches:
        """What the caller may mean by this text: jobs, queues, tasks, runs and workers."""
        if not 1 <= len(text) <= _LONGEST:
            raise InvalidInput("the text has the wrong length", field="q", expected=f"1 to {_LONGEST} characters")
        beginning = text.lower()
        await self._lanes.refresh()
        async with searching(self._store, caller.tenant, "jobs") as connection:
            jobs = await ids.jobs_by_name(connection, caller.tenant, text, MOST + 1)
            listed = await workers.list_workers(connection, caller.tenant, _WORKERS)
        tasks = self._lanes.tasks(caller.tenant) | set(self._signatures.known(caller.tenant))
        kinds = [
            [Match("job", row.job_id, row.name) for row in jobs],
            [Match("queue", name) for name in _beginning(self._lanes.queues(caller.tenant), beginning)],
            [Match("task", name) for name in _beginning(tasks, beginning)],
            [Match("worker", str(row.worker_id), row.name) for row in listed if row.name.lower().startswith(beginning)],
        ]
        if len(text) >= SHORTEST_PART and set(beginning) <= _DIGITS:
            found = await self._ids.find(caller, IdQuery(beginning, (RUN,)))
            kinds.append([Match("run", match.id, match.name) for match in found.ids])
        return Matches([match for kind in kinds for match in kind[:MOST]], any(len(kind) > MOST for kind in kinds))


def _beginning(names: Iterable[str], text: str) -> list[str]:
    return sorted(name for name in names if name.lower().startswith(text))
