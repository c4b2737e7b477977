"""Jobs declare limits in the transaction that stores them, so that a job that is refused declares nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mainspring.domain.limits import Declared, Slot
from mainspring.kernel.ids import TenantId
from mainspring.store import limit_declarations
from mainspring.store.pool import Connection

_MOST_REMEMBERED = 100_000
_DECLARED_FOR = 1.0  # second; then a declaration is repeated, in case another process has declared otherwise
_OPEN_FOR = 60.0  # seconds; an unused line lives longer


_NOTHING: tuple[Declared | None, float] = (None, 0.0)


class LimitDeclarer:
    """Declares limits and creates their lines, and remembers for a short time what is declared. `now` is a monotonic
    clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._declared: dict[tuple[TenantId, str], tuple[Declared, float]] = {}
        self._open: dict[tuple[TenantId, str, str], float] = {}

    async def declare(
        self, connection: Connection, tenant: TenantId, slots: Sequence[Slot]
    ) -> tuple[list[Slot], set[str]]:
        """Store what slots of new jobs declare, in the transaction of the caller, which has taken the keys and ids of
        these jobs. Returns the slots that are not known to be declared, for `committed`, and the names of limits in
        strict order that a slot declares without it."""
        ordered = {slot.name for slot in slots if slot.strict}
        if ordered and (loose := {slot.name for slot in slots if not slot.strict and slot.name in ordered}):
            return [], loose
        now = self._now()
        fresh = [slot for slot in slots if not self._is_done(tenant, slot, now)]
        return fresh, await limit_declarations.declare(connection, tenant, fresh) if fresh else set()

    def committed(self, tenant: TenantId, slots: Iterable[Slot]) -> None:
        """Remember that these slots are declared. A slot of a single job is not remembered, because the id of the job
        can be used again."""
        now = self._now()
        if len(self._open) > _MOST_REMEMBERED:
            self._open.clear()
            self._declared.clear()
        for slot in slots:
            if not slot.of_job:
                self._declared[tenant, slot.name] = slot.declared, now + _DECLARED_FOR
                self._open[tenant, slot.name, slot.key] = now + _OPEN_FOR

    def _is_done(self, tenant: TenantId, slot: Slot, now: float) -> bool:
        declared, until = self._declared.get((tenant, slot.name), _NOTHING)
        return until > now and declared == slot.declared and self._open.get((tenant, slot.name, slot.key), 0.0) > now
