"""Finds ids by a part of them, for people who type. The search reads a bounded number of rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from mainspring.domain.errors import InvalidInput
from mainspring.operations.access.caller import Caller
from mainspring.operations.lookup import load_lane
from mainspring.operations.read.search import searching
from mainspring.store import ids
from mainspring.store.ids import IdRow
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import Connection, Store
from mainspring.wire.ids import IdList, IdMatch

SHORTEST = 4
LONGEST = 1000
SCANNED = 100_000  # rows of each table
_MOST = 20
_FINDERS = {"run": ids.runs, "job": ids.jobs, "dead_letter": ids.dead_letters, "worker": ids.workers}


class IdQuery(msgspec.Struct, frozen=True):
    """The parameters of `GET /v1/ids`."""

    part: str
    kinds: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not SHORTEST <= len(self.part) <= LONGEST:
            raise InvalidInput(
                "part has the wrong length", field="part", expected=f"{SHORTEST} to {LONGEST} characters"
            )
        if "\x00" in self.part:
            raise InvalidInput("part contains a NUL", field="part", hint="leave it out")
        for kind in self.kinds:
            if kind not in _FINDERS:
                raise InvalidInput(f"{kind!r} is not a kind of id", field="kind", expected=", ".join(_FINDERS))


class IdReader:
    def __init__(self, store: Store, lanes: LaneRegistry) -> None:
        self._store = store
        self._lanes = lanes

    async def find(self, caller: Caller, query: IdQuery) -> IdList:
        """The ids that begin or end with a text. `complete`: nothing was left out of the search."""
        found: dict[tuple[str, str], IdMatch] = {}
        complete = True
        async with searching(self._store, caller.tenant, "ids") as connection:
            for kind in query.kinds or _FINDERS:
                part = query.part if kind == "job" else query.part.lower()
                results = await _FINDERS[kind](connection, caller.tenant, part, SCANNED, _MOST + 1)
                complete = complete and all(rows[0].scanned < SCANNED for rows in results)
                for match in await self._matches(connection, kind, results):
                    known = found.setdefault((kind, match.id), match)
                    known.name = known.name or match.name
        matches = sorted(found.values(), key=lambda match: (match.kind, match.id), reverse=True)
        return IdList(matches[:_MOST], complete=complete, more=len(matches) > _MOST)

    async def _matches(self, connection: Connection, kind: str, results: Iterable[list[IdRow]]) -> list[IdMatch]:
        matches = []
        for row in (row for rows in results for row in rows if row.id is not None):
            name = row.name
            if name is None and row.lane_id is not None:
                name = (await load_lane(self._lanes, connection, row.lane_id)).task
            matches.append(IdMatch(kind, row.id or "", name))
        return matches
