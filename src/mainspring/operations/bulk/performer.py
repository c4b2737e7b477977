"""The performer: carries out operations, a slice at a time.

A slice is one transaction: the operation is locked, the verb is carried out for the next objects, and the place of the
next slice is written. A process that is killed in a slice has changed nothing, and any server or scheduler continues
there. While one carries out a slice, the others turn to other operations.
"""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import asyncpg
import msgspec

from mainspring.domain.bulk import BulkState, Target
from mainspring.domain.errors import InvalidInput, Unavailable
from mainspring.kernel.logs import get_logger
from mainspring.operations.access.caller import Caller
from mainspring.operations.access.permissions import ADMIN
from mainspring.operations.bulk.filters import KINDS
from mainspring.operations.bulk.selector import BulkRequest, Selection, Selector, by_ids
from mainspring.operations.bulk.verbs import VerbOutcome, Verbs, apply_verb
from mainspring.store import alerts, operations
from mainspring.store.deadlocks import despite_deadlocks
from mainspring.store.operations import Advance, OperationRow
from mainspring.store.pool import AWAY, Connection, Store
from mainspring.wire.bulk import Failure

log = get_logger("performer")

_LOOKED_AT = 100  # operations per round
_SHOWN_FAILURES = 20
_LONGEST_REASON = 500
_TRIES = 10  # of a slice that takes too long, or whose rows others hold
_NOBODY = UUID(int=0)
_decode_failures = msgspec.json.Decoder(list[Failure]).decode


class Performer:
    name = "performer"
    interval = 1.0

    def __init__(self, store: Store, selector: Selector, verbs: Verbs) -> None:
        self._store = store
        self._selector = selector
        self._verbs = verbs
        self._tries: Counter[UUID] = Counter()

    async def run_once(self) -> int:
        """Carry out all operations, one slice of each in turn. Returns the number of slices."""
        slices = 0
        while True:
            async with self._store.reads.acquire() as connection:
                found = await operations.at_work(connection, _LOOKED_AT)
            moved = [await self._turn(row) for row in found]
            if not any(moved):
                return slices
            slices += sum(moved)

    async def _turn(self, row: OperationRow) -> bool:
        """One slice. Return whether it was carried out here."""
        try:
            moved = await self.step(row)
        except Unavailable:
            return False  # the searches of the tenant come first
        except InvalidInput as error:  # the search is too slow by now, or the filter is of another version
            await self._give_up(row, error.detail)
            return False
        except Exception as error:
            if isinstance(error, AWAY) and not isinstance(error, asyncpg.QueryCanceledError):
                raise
            # It takes too long, or others hold its rows. It does not hold up the other operations.
            self._tries[row.operation_id] += 1
            log.warning("a slice is tried again", operation=str(row.operation_id), error=repr(error))
            if self._tries[row.operation_id] >= _TRIES:
                await self._give_up(row, "it takes too long, or what it changes is in use")
            return False
        self._tries.pop(row.operation_id, None)
        return moved

    async def step(self, row: OperationRow) -> bool:
        """Choose the objects of a slice, and carry it out. Return False if it is not the turn of this slice."""
        verb = self._verbs.named(Target(row.target), row.verb)
        chosen = await self._choose(row, verb.at_once)

        async def transaction() -> VerbOutcome | None:
            async with self._store.change() as connection:
                if not await operations.lock(connection, row):
                    return None
                done = await apply_verb(verb, _caller(row), connection, chosen.ids)
                step = _advance(row, chosen, done)
                await operations.advance(connection, row, step)
                await _tell_end(connection, row, step)
                return done

        outcome = await despite_deadlocks(transaction)
        if outcome is None:
            return False
        for after_commit in outcome.after_commit:
            after_commit()
        self._verbs.publish_changed(row.tenant_id, len(chosen.ids))
        if chosen.place is None:
            log.info("operation is done", operation=str(row.operation_id), target=row.target, verb=row.verb)
        return True

    async def _choose(self, row: OperationRow, limit: int) -> Selection:
        if row.ids is not None:
            return by_ids(row.ids, row.place, limit)
        target = Target(row.target)
        chosen = msgspec.json.decode(row.filter_text or "{}", type=KINDS[target])
        return await self._selector.some(
            BulkRequest(_caller(row), target, row.verb, chosen, row.created_at), row.place, limit
        )

    async def _give_up(self, row: OperationRow, reason: str) -> None:
        self._tries.pop(row.operation_id, None)
        step = Advance(row.place, 0, 0, row.failures_text, int(BulkState.FAILED), reason)
        async with self._store.change() as connection:
            if await operations.lock(connection, row):
                await operations.advance(connection, row, step)
                await _tell_end(connection, row, step)
                log.warning("operation failed", operation=str(row.operation_id), reason=reason)


def _caller(row: OperationRow) -> Caller:
    """Who began it. What the token may do was decided then."""
    return Caller(row.tenant_id, ADMIN, row.requested_by, row.token_id or _NOBODY, narrowing=row.narrowing)


def _advance(row: OperationRow, chosen: Selection, done: VerbOutcome) -> Advance:
    known = _decode_failures(row.failures_text)
    room = max(0, _SHOWN_FAILURES - len(known))
    shown = [*known, *(Failure(one.id, one.reason[:_LONGEST_REASON]) for one in done.failures[:room])]
    failed = len(done.failures)
    over = chosen.place is None
    return Advance(
        place=chosen.place,
        done=len(chosen.ids) - failed,
        failed=failed,
        failures_text=msgspec.json.encode(shown).decode(),
        state=int(BulkState.DONE if over else BulkState.RUNNING),
    )


async def _tell_end(connection: Connection, row: OperationRow, step: Advance) -> None:
    """For rules that want to know of operations that ended."""
    if step.state != BulkState.RUNNING:
        done, failed = row.done + step.done, row.failed + step.failed
        reason = f"{done:,} done, {failed:,} refused" + (f": {step.reason}" if step.reason else "")
        await alerts.note_event(
            connection, row.tenant_id, "operation_ended", f"operation {row.verb} on {row.target}", job_id=None,
            path=f"/ui/operations?op={row.operation_id}", reason=reason,
        )  # fmt: skip
