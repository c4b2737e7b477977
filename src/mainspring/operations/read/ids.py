"""Finds ids by a part of them, for people who type. The search reads a bounded number of rows."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mainspring.domain.errors import InvalidInput
from mainspring.kernel.ids import TenantId
from mainspring.operations.access.caller import Caller
from mainspring.operations.lookup import load_lane
from mainspring.operations.paging.search import searching
from mainspring.store import ids
from mainspring.store.ids import IdRow
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import Connection, Store
from mainspring.wire.ids import LONGEST_PART, SHORTEST_PART, IdList, IdMatch

SCANNED = 100_000  # rows of each table
_MOST = 20
KINDS = RUN, JOB, DEAD_LETTER, WORKER = "run", "job", "dead_letter", "worker"


class IdQuery(msgspec.Struct, frozen=True):
    """The parameters of `GET /v1/ids`."""

    part: str
    kinds: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not SHORTEST_PART <= len(self.part) <= LONGEST_PART:
            expected = f"{SHORTEST_PART} to {LONGEST_PART} characters"
            raise InvalidInput("part has the wrong length", field="part", expected=expected)
        if "\x00" in self.part:
            raise InvalidInput("part contains a NUL", field="part", hint="leave it out")
        for kind in self.kinds:
            if kind not in KINDS:
                raise InvalidInput(f"{kind!r} is not a kind of id", field="kind", expected=", ".join(KINDS))


class IdReader:
    def __init__(self, store: Store, lanes: LaneRegistry) -> None:
        self._store = store
        self._lanes = lanes

    async def find(self, caller: Caller, query: IdQuery) -> IdList:
        """The ids that begin or end with a text. `complete`: nothing was left out of the search."""
        found: dict[tuple[str, str], IdMatch] = {}
        complete = True
        async with searching(self._store, caller.tenant, "ids") as connection:
            for kind, rows in await _results(connection, caller.tenant, query):
                complete = complete and rows[0].scanned < SCANNED
                for row in rows:
                    if row.id is None:
                        continue
                    named = "job" if row.job else kind
                    match = found.setdefault((named, row.id), IdMatch(named, row.id))
                    match.name = match.name or await self._name(connection, row)
        matches = sorted(found.values(), key=lambda match: (match.kind, match.id), reverse=True)
        return IdList(matches[:_MOST], complete=complete, more=len(matches) > _MOST)

    async def _name(self, connection: Connection, row: IdRow) -> str | None:
        if row.name is not None or row.lane_id is None:
            return row.name
        return (await load_lane(self._lanes, connection, row.lane_id)).task


async def _results(connection: Connection, tenant: TenantId, query: IdQuery) -> list[tuple[str, list[IdRow]]]:
    wanted = set(query.kinds or KINDS)
    bounds = (SCANNED, _MOST + 1)
    results: list[tuple[str, list[IdRow]]] = []
    if wanted & {RUN, JOB}:
        named = {"runs": RUN in wanted, "jobs": JOB in wanted}
        results += [(RUN, rows) for rows in await ids.runs_and_jobs(connection, tenant, query.part, *bounds, **named)]
    if wanted & {RUN, DEAD_LETTER}:  # a dead letter may be older than the newest runs
        rows = await ids.search(connection, ids.DEAD_LETTERS, tenant, query.part.lower(), *bounds)
        results += [(kind, rows) for kind in (RUN, DEAD_LETTER) if kind in wanted]
    if WORKER in wanted:
        results.append((WORKER, await ids.search(connection, ids.WORKERS, tenant, query.part.lower(), *bounds)))
    return results
