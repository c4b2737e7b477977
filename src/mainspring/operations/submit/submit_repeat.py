"""A submission that PostgreSQL has not acknowledged is tried again when PostgreSQL is back.

Its commit may have happened. So each attempt stores under the same ids: before it repeats, the server looks up whether
they exist. A transaction that commits later than it was looked for holds the same primary keys, so only one of both
is stored.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import asyncpg

from mainspring.kernel.ids import TenantId
from mainspring.kernel.patience import ClientGone, patience_here
from mainspring.operations.submit.batch import SubmitBatch
from mainspring.store import runs
from mainspring.store.outage_queue import despite_outages, is_outage
from mainspring.store.pool import Connection, Store

_MOST_CONFLICTS = 5


class StoredMeanwhile(Exception):
    """The transaction before this one was committed after all."""


class InDoubt(Exception):
    """It is unknown whether the run with this id was stored. The cause is the error of PostgreSQL."""

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id)
        self.run_id = run_id


class RepeatedSubmit:
    """`run_ids`: one for each job of the submission. `batch`: what was stored if the transaction is committed."""

    def __init__(self, run_ids: Sequence[str]) -> None:
        self.run_ids = run_ids
        self.batch: SubmitBatch | None = None
        self.is_repeat = False

    async def check(self, connection: Connection, tenant: TenantId) -> None:
        """Raises StoredMeanwhile if runs of an earlier attempt have ended since they were looked for. Called after the
        insert, which their transaction can no longer pass."""
        if self.is_repeat and await runs.ended_ids(connection, tenant, self.run_ids):
            raise StoredMeanwhile

    async def until_stored(
        self, store: Store, tenant: TenantId, action: Callable[[], Awaitable[None]], error: BaseException | None = None
    ) -> None:
        """Call `action` until it succeeds, or until it turns out that it has. `error` is that of an earlier call.
        Raises the error if the request of this context may not wait, or if nothing shows whether it was stored."""
        error = error or await self._error_of(action)
        conflicts = 0
        while error is not None:
            store.outage.note(error)
            conflicts += not is_outage(error)
            patience = patience_here.get()
            if patience is None or conflicts > _MOST_CONFLICTS:
                raise error
            if is_outage(error) and not await store.waiting.wait(patience):
                raise error
            if await patience.is_gone():
                raise ClientGone from error
            if self.batch is not None:  # otherwise nothing was sent
                run_ids, job_ids = self.batch.witnesses()
                if not run_ids and not self.batch.may_repeat:
                    raise error
                if await despite_outages(store.waiting, partial(_are_stored, store, tenant, run_ids, job_ids)):
                    return
            self.is_repeat = True
            error = await self._error_of(action)

    async def _error_of(self, action: Callable[[], Awaitable[None]]) -> Exception | None:
        """None if it has succeeded. Raises errors after which a repeat would not help."""
        try:
            await action()
        except (StoredMeanwhile, asyncpg.UniqueViolationError) as conflict:
            if not self.is_repeat:
                raise
            return conflict
        except Exception as failure:
            if not is_outage(failure):
                raise
            return failure
        return None


async def _are_stored(store: Store, tenant: TenantId, run_ids: Sequence[str], job_ids: Sequence[str]) -> bool:
    async with store.hot.acquire() as connection:
        return bool(await runs.stored_ids(connection, tenant, run_ids, job_ids))
