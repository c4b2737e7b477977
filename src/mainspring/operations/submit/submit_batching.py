"""Submit batching: jobs that are submitted one by one at the same time are stored together.

The next insert takes the jobs that arrive in one turn of the event loop, and those that arrive while other inserts are
in progress. No request is delayed to wait for others. Each request is answered after the commit of its own job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import msgspec

from mainspring.domain.job import JobDefinition
from mainspring.kernel.ids import TenantId, uuid7_texts
from mainspring.operations.access.caller import Caller
from mainspring.operations.submit.submit_repeat import InDoubt
from mainspring.store.pool import AWAY

_MAX_BATCH = 500
_MAX_BYTES = 4 * 1024 * 1024  # of payloads in one insert: the driver copies them in one go
_MAX_INSERTS = 2  # at once, so that one that hangs on a dead connection does not block the others

Insert = Callable[[Caller, Sequence[JobDefinition], Sequence[str]], Awaitable[object]]


class PendingJob(msgspec.Struct, frozen=True):
    caller: Caller
    definition: JobDefinition
    job_id: asyncio.Future[str]


class SubmitBatcher:
    """`insert` stores all of the definitions or none of them, under these ids. An insert stores jobs of one token."""

    def __init__(self, insert: Insert) -> None:
        self._insert = insert
        self._waiting: dict[TenantId, dict[UUID, list[PendingJob]]] = {}
        self._inserts: dict[asyncio.Task[None], Sequence[PendingJob]] = {}
        self._start_scheduled = False

    async def add(self, caller: Caller, definition: JobDefinition) -> str:
        """Return the id of the job when it is committed. Raises InDoubt if PostgreSQL went away meanwhile."""
        loop = asyncio.get_running_loop()
        waiting = PendingJob(caller, definition, loop.create_future())
        self._waiting.setdefault(caller.tenant, {}).setdefault(caller.credential, []).append(waiting)
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
            tenant, by_token = next(iter(self._waiting.items()))
            token, pending = next(iter(by_token.items()))
            count = _batch_size(pending)
            batch, rest = pending[:count], pending[count:]
            del self._waiting[tenant], by_token[token]
            if rest:
                by_token[token] = rest  # behind the other tokens of the tenant
            if by_token:
                self._waiting[tenant] = by_token  # behind the other tenants
            insert = asyncio.create_task(self._store(batch))
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

    async def _store(self, batch: Sequence[PendingJob]) -> None:
        batch = [waiting for waiting in batch if not waiting.job_id.done()]
        if not batch:
            return
        job_ids = uuid7_texts(len(batch))
        try:
            await self._insert(batch[0].caller, [waiting.definition for waiting in batch], job_ids)
        except AWAY as error:
            for waiting, job_id in zip(batch, job_ids, strict=True):
                doubt = InDoubt(job_id)
                doubt.__cause__ = error
                _fail([waiting], doubt)
        except Exception as error:  # noqa: BLE001 - handed on to the request
            if len(batch) == 1:
                _fail(batch, error)
                return
            middle = len(batch) // 2  # nothing is stored yet; find the job that cannot be stored
            await self._store(batch[:middle])
            await self._store(batch[middle:])
        else:
            for waiting, job_id in zip(batch, job_ids, strict=True):
                if not waiting.job_id.done():
                    waiting.job_id.set_result(job_id)


def _batch_size(pending: Sequence[PendingJob]) -> int:
    """How many of these jobs go into one insert. At least one."""
    weight = 0
    for count, waiting in enumerate(pending[:_MAX_BATCH]):
        weight += len(waiting.definition.payload or "")
        if weight > _MAX_BYTES and count:
            return count
    return min(_MAX_BATCH, len(pending))


def _fail(batch: Sequence[PendingJob], error: Exception) -> None:
    for waiting in batch:
        if not waiting.job_id.done():
            waiting.job_id.set_exception(error)
