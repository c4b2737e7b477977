"""Which server shows the state of the database in its metrics.

All servers see the same state. One of those that are asked shows it, so that a sum over them counts each run once. It
does not matter which of them schedule."""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID, uuid5

from mainspring.kernel.ids import uuid7
from mainspring.kernel.siblings import SiblingPlace
from mainspring.operations.access.caller import Caller
from mainspring.store import gauges
from mainspring.store.pool import AWAY, Store

_PLACES = UUID("6f1d4f0e-55a5-4f39-8a94-2f5d3a1b7c10")


class GaugeServer:
    """This server among those that are asked for metrics. The processes of a server are one server: any of them may be
    asked next."""

    def __init__(self, store: Store, place: SiblingPlace | None = None) -> None:
        self._store = store
        self._server_id = uuid7() if place is None else uuid5(_PLACES, place.folder)
        self._alone = place is None

    async def shows(self, caller: Caller) -> bool:
        """Whether this server shows the state of the caller's tenant."""
        async with self._store.reads.acquire() as connection:
            return await gauges.show(connection, caller.tenant, self._server_id)

    async def close(self) -> None:
        """Let another server take over at once."""
        if self._alone:
            with suppress(*AWAY):
                async with self._store.reads.acquire(timeout=1) as connection:
                    await gauges.leave(connection, self._server_id)
