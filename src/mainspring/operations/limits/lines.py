"""Lines are opened before they are needed: those of tasks in a transaction of their own, because many open the same.
Those of a job are opened in the transaction that creates the job, so that a job that is refused declares nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mainspring.domain.errors import NotSupportedYet
from mainspring.domain.limits import Slot
from mainspring.kernel.ids import TenantId
from mainspring.store import limits
from mainspring.store.pool import Connection

_MOST_REMEMBERED = 100_000
_REMEMBERED_FOR = 1.0  # second; then a declaration is repeated, in case another process has declared otherwise
_CHUNK = 1000


class LineOpener:
    """Opens lines, and remembers for a short time which ones it has opened. `now`: seconds that rise."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._opened: dict[tuple[TenantId, Slot], float] = {}
        self._known = False

    async def open(self, connection: Connection, tenant: TenantId, slots: Sequence[Slot]) -> None:
        """Store what the slots declare. The caller has no transaction open."""
        if not self._known:
            await check_known(connection, slots)
            self._known = True
        now = self._now()
        fresh = [slot for slot in slots if self._opened.get((tenant, slot), now) <= now]
        for start in range(0, len(fresh), _CHUNK):
            await limits.open_lines(connection, tenant, fresh[start : start + _CHUNK])
        if len(self._opened) + len(fresh) > _MOST_REMEMBERED:
            self._opened.clear()
        for slot in fresh:
            self._opened[tenant, slot] = now + _REMEMBERED_FOR

    async def open_own(self, connection: Connection, tenant: TenantId, slots: Sequence[Slot]) -> None:
        """Store what slots of jobs declare, in the transaction of the caller, which has taken the ids of the jobs. It
        is not remembered: an id can be used again with another number."""
        for start in range(0, len(slots), _CHUNK):
            await limits.open_lines(connection, tenant, slots[start : start + _CHUNK])


async def check_known(connection: Connection, slots: Sequence[Slot]) -> None:
    """Raise unless all servers know limits: an older one would end a run and keep its slot."""
    if not await limits.known(connection):
        raise NotSupportedYet(
            "limits work when no older server is left",
            field=_field(slots[0]) if slots else "concurrency",
            hint="run `mainspring migrate` after the upgrade (docs/upgrading.md)",
        )


def _field(slot: Slot) -> str:
    """The field of a job that declares it."""
    if slot.failures is not None:
        return "circuit_breaker"
    if slot.every is not None:
        return "rate_limit"
    return "overlap" if slot.name.startswith("overlap:") else "concurrency"
