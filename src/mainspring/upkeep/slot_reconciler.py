"""The slot reconciler counts the slots of lines that have not changed for five minutes although runs wait in them.

A slot whose run is gone would never be released. This happens if a server of an older version, which does not know
limits, ends a run. Every transaction that changes a slot holds the lock of its line, so under that lock the count must
equal the rows."""

from __future__ import annotations

from mainspring.kernel.logs import get_logger
from mainspring.operations.signals import Signals
from mainspring.store import limits
from mainspring.store.pool import Store

log = get_logger("slot_reconciler")

_STOOD_STILL = 300.0  # seconds; to count takes a scan of the live runs
_BATCH = 100


class SlotReconciler:
    name = "slot_reconciler"
    interval = 60.0

    def __init__(self, store: Store, signals: Signals, stood_still: float = _STOOD_STILL) -> None:
        self._store = store
        self._signals = signals
        self._stood_still = stood_still

    async def run_once(self) -> int:
        """Return how many lines were corrected."""
        async with self._store.reads.acquire() as connection:
            lines = await limits.lines_that_stand_still(connection, self._stood_still, _BATCH)
            if not lines:
                return 0
            async with connection.transaction():
                locked = {line.key_id: line.in_use for line in await limits.lock_lines(connection, lines)}
                owned = await limits.owned_slots(connection, list(locked))
                wrong = {line: owned.get(line, 0) for line, in_use in locked.items() if owned.get(line, 0) != in_use}
                await limits.correct(connection, wrong, audited=list(locked))
        for line, slots in wrong.items():
            log.error("the slots of a line were counted wrong", line=line, counted=locked[line], slots=slots)
        self._signals.admission.publish([frozenset({line}) for line in wrong])
        return len(wrong)
