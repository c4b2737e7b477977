"""Submit batching: jobs that are submitted one by one at the same time are stored together.

The next insert takes the jobs that arrive in one turn of the event loop, and those that arrive while other inserts are
in progress. No request is delayed to wait for others. Each request is answered after the commit of its own job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from mainspring.domain.job import JobDefinition
from mainspring.kernel.ids import TenantId
from mainspring.store.pool import AWAY

_MAX_BATCH = 500
_MAX_INSERTS = 2  # at once, so that one that hangs on a dead connection does not block the others

Insert = Callable[[TenantId, Sequence[JobDefinition]], Awaitable[Sequence[str]]]


class PendingJob(msgspec.Struct, frozen=True):
    definition: JobDefinition
    job_id: asyncio.Future[str]


class SubmitBatcher:
    """`insert` stores all of the definitions or none of them, and returns their ids in order."""

    def __init__(self, insert: Insert) -> None:
        self._insert = insert
        self._waiting: dict[TenantId, list[PendingJob]] = {}
        self._inserts: dict[asyncio.Task[None], Sequence[PendingJob]] = {}
        self._start_scheduled = False

    async def add(self, tenant: TenantId, definition: JobDefinition) -> str:
        """Return the id of the job when it is committed."""
        loop = asyncio.get_running_loop()
        waiting = PendingJob(definition, loop.create_future())
        self._waiting.setdefault(tenant, []).append(waiting)
        if not self._start_scheduled:
            self._start_scheduled = True
            loop.call_soon(self._start_inserts)
        try:
            return await waiting.job_id
        except asyncio.CancelledError:
            self._cancel_abandoned()
            raise

    def _start_inserts(self) -> None:
        self._start_scheduled = False
        while self._waiting and len(self._inserts) < _MAX_INSERTS:
            tenant, pending = next(iter(self._waiting.items()))
            batch, rest = pending[:_MAX_BATCH], pending[_MAX_BATCH:]
            del self._waiting[tenant]
            if rest:
                self._waiting[tenant] = rest  # behind the other tenants
            insert = asyncio.create_task(self._store(tenant, batch))
            self._inserts[insert] = batch
            insert.add_done_callback(self._on_insert_done)

    def _on_insert_done(self, insert: asyncio.Task[None]) -> None:
        for waiting in self._inserts.pop(insert):
            waiting.job_id.cancel()  # has no effect, unless the insert was cancelled
        self._start_inserts()

    def _cancel_abandoned(self) -> None:
        """Cancel inserts whose requests have all gone. Their connections may be dead, and other inserts need the
        slot."""
        for insert, batch in self._inserts.items():
            if all(waiting.job_id.done() for waiting in batch):
                insert.cancel()

    async def _store(self, tenant: TenantId, batch: Sequence[PendingJob]) -> None:
        batch = [waiting for waiting in batch if not waiting.job_id.done()]
        try:
            job_ids = await self._insert(tenant, [waiting.definition for waiting in batch])
        except AWAY as error:
            _fail(batch, error)  # it is unknown whether they were stored
        except Exception as error:  # noqa: BLE001 - handed on to the request
            if len(batch) == 1:
                _fail(batch, error)
                return
            middle = len(batch) // 2  # nothing is stored yet; find the job that cannot be stored
            await self._store(tenant, batch[:middle])
            await self._store(tenant, batch[middle:])
        else:
            for waiting, job_id in zip(batch, job_ids, strict=True):
                if not waiting.job_id.done():
                    waiting.job_id.set_result(job_id)


def _fail(batch: Sequence[PendingJob], error: Exception) -> None:
    for waiting in batch:
        if not waiting.job_id.done():
            waiting.job_id.set_exception(error)
