"""Circuit breakers as people see them: list, and reset."""

from __future__ import annotations

from mainspring.domain.breakers import Breaker
from mainspring.domain.errors import NotFound
from mainspring.domain.showing import breaker_view
from mainspring.domain.tags import breaker_tag, check_tag
from mainspring.kernel.logs import get_logger
from mainspring.operations.access.audit_record import record
from mainspring.operations.access.caller import Caller
from mainspring.operations.lifecycle.dispatch import BREAKERS_CLOSED
from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.lifecycle.events import BreakerClosed
from mainspring.operations.signals import Signals
from mainspring.store import breakers, limits
from mainspring.store.breakers import BreakerRow
from mainspring.store.pool import Store
from mainspring.wire.limits import BreakerList, BreakerView

log = get_logger("breakers")

_MOST = 1000
_BIGGEST_ID = 2**31 - 1


class BreakerControl:
    def __init__(self, store: Store, signals: Signals) -> None:
        self._store = store
        self._signals = signals

    async def breakers(self, caller: Caller) -> BreakerList:
        """Open ones first, at most 1,000."""
        async with self._store.reads.acquire() as connection:
            rows = await breakers.listed(connection, caller.tenant, _MOST + 1)
        return BreakerList([_view(row) for row in rows[:_MOST]], more=len(rows) > _MOST)

    async def reset(self, caller: Caller, breaker_id: str, if_match: str | None = None) -> BreakerView:
        """Close the breaker, whatever it is, and forget its failures. The runs behind it are admitted."""
        missing = NotFound(f"there is no circuit breaker {breaker_id!r}", hint="see GET /v1/breakers")
        limit_id = int(breaker_id) if breaker_id.isdecimal() and breaker_id.isascii() else 0
        if not 0 < limit_id <= _BIGGEST_ID:
            raise missing
        async with self._store.change() as connection:
            row = await breakers.get(connection, caller.tenant, limit_id)
            lines = [] if row is None else await limits.lock_lines(connection, [row.key_id])
            if row is None or not lines:
                raise missing
            check_tag("circuit breaker", breaker_tag(lines[0].failed, lines[0].opened_at), if_match)
            if not await limits.set_breakers(connection, {row.key_id: Breaker()}):
                raise missing
            before = {"state": _state(row).word, "failures": lines[0].failed}
            await record(connection, caller, "breaker", limit_id, before, {"state": "closed", "failures": 0})
            if lines[0].opened_at is not None:
                await BREAKERS_CLOSED.happened(connection, [BreakerClosed(row.key_id)], Effects())
        log.info("circuit breaker reset", name=row.name, was=_state(row).word)
        self._signals.admission.publish([frozenset({row.key_id})])
        async with self._store.reads.acquire() as connection:
            after = await breakers.get(connection, caller.tenant, limit_id)
        return _view(after or row)


def _state(row: BreakerRow) -> Breaker:
    return Breaker(row.failed, row.opened_at, row.next_at, row.probe)


def _view(row: BreakerRow) -> BreakerView:
    return breaker_view(row.limit_id, row.name, _state(row), row.failures, row.open_for, row.held)
