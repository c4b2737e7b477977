"""People set limits: the number then counts instead of what jobs and tasks declare."""

from __future__ import annotations

import asyncio

from mainspring.domain.errors import Unavailable
from mainspring.domain.intake.limits import check_setting
from mainspring.domain.tags import check_tag, limit_tag
from mainspring.kernel.clock import Clock
from mainspring.operations.access.audit_record import record
from mainspring.operations.access.caller import Caller
from mainspring.operations.lookup import no_limit
from mainspring.operations.signals import Signals
from mainspring.store import limit_reads
from mainspring.store.pool import Store

_PATIENCE = 5.0  # seconds
_PAUSE = 0.01
_KNOCKED = 1000  # lines; the admitter finds the others


class LimitSetter:
    def __init__(self, store: Store, signals: Signals, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._signals = signals

    async def change(
        self,
        caller: Caller,
        limit_id: int,
        limit: int | None,
        order: str | None = None,
        if_match: str | None = None,
    ) -> None:
        """Set the limit, or return to what is declared (None). Afterwards no run is admitted by the earlier number.
        `order`: priority ends strict order."""
        async with self._store.reads.acquire() as connection:
            async with connection.transaction():
                row = await limit_reads.lock(connection, caller.tenant, limit_id)
                if row is None:
                    raise no_limit(str(limit_id))
                present = limit_tag(row.slots, row.declared, pinned=row.pinned, strict=row.strict)
                check_tag("limit", present, if_match)
                check_setting(row.name, limit, order, strict=row.strict)
                await limit_reads.set_slots(connection, limit_id, limit, loose=order is not None)
                before = {"name": row.name, "limit": row.slots if row.pinned else None, "strict": row.strict}
                after = {"name": row.name, "limit": limit, "strict": row.strict and order is None}
                await record(connection, caller, "limit", limit_id, before, after)
            under_way = await limit_reads.admissions_under_way(connection)
            waiting = await limit_reads.lines_that_wait(connection, limit_id, _KNOCKED)
        self._signals.admission.publish([frozenset({line}) for line in waiting])
        await self._wait_for(under_way)

    async def _wait_for(self, transactions: set[str]) -> None:
        """An admission that began before the change may have read the number before it."""
        end = self._clock.monotonic() + _PATIENCE
        while transactions:
            async with self._store.reads.acquire() as connection:
                transactions &= await limit_reads.admissions_under_way(connection)
            if not transactions:
                return
            if self._clock.monotonic() > end:
                raise Unavailable(
                    "the limit is set, but a transaction that began before is still open and may admit runs by the"
                    " number before", code="admissions_open", hint="try again shortly",
                )  # fmt: skip
            await asyncio.sleep(_PAUSE)
