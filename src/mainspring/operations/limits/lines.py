"""Lines are opened before they are needed, in a transaction of their own."""

from __future__ import annotations

import time
from collections.abc import Sequence

from mainspring.domain.errors import NotSupportedYet
from mainspring.domain.limits import Slot
from mainspring.kernel.ids import TenantId
from mainspring.store import limits
from mainspring.store.pool import Connection

_MOST_REMEMBERED = 100_000
_REMEMBERED_FOR = 10.0  # seconds; then a declaration is repeated, in case another process has declared otherwise
_CHUNK = 1000


class LineOpener:
    """Opens lines, and remembers for a short time which ones it has opened."""

    def __init__(self) -> None:
        self._opened: dict[tuple[TenantId, Slot], float] = {}
        self._known = False

    async def open(self, connection: Connection, tenant: TenantId, slots: Sequence[Slot]) -> None:
        """Store what the slots declare. The caller has no transaction open."""
        await self.check_known(connection)
        now = time.monotonic()
        fresh = [slot for slot in slots if self._opened.get((tenant, slot), -1.0) < now]
        for start in range(0, len(fresh), _CHUNK):
            await limits.open_lines(connection, tenant, fresh[start : start + _CHUNK])
        if len(self._opened) + len(fresh) > _MOST_REMEMBERED:
            self._opened.clear()
        for slot in fresh:
            self._opened[tenant, slot] = now + _REMEMBERED_FOR

    async def check_known(self, connection: Connection) -> None:
        """Raise unless all servers know limits: an older one would end a run and keep its slot."""
        if not self._known:
            self._known = await limits.known(connection)
        if not self._known:
            raise NotSupportedYet(
                "limits work when no older server is left",
                field="concurrency",
                hint="run `mainspring migrate` after the upgrade (docs/upgrading.md)",
            )
