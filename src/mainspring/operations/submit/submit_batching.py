"""Jobs that are submitted one by one at the same time are stored together.

What arrives in one turn of the loop, or while the inserts under way take their time, goes into the next insert. Nobody
waits for company, and everybody is answered after the commit of the statement that holds his job, as if he were alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from mainspring.domain.job import JobDefinition
from mainspring.kernel.ids import TenantId
from mainspring.store.pool import AWAY

_MOST = 500
_MOST_BYTES = 4 * 1024 * 1024  # of payloads: the driver copies them in one go
_FLIGHTS = 2  # one that hangs on a dead connection does not hold up the others

Insert = Callable[[TenantId, Sequence[JobDefinition]], Awaitable[Sequence[str]]]


class PendingJob(msgspec.Struct, frozen=True):
    definition: JobDefinition
    job_id: asyncio.Future[str]


class SubmitBatcher:
    """`insert` stores all of the definitions or none of them, and answers their ids in order."""

    def __init__(self, insert: Insert) -> None:
        self._insert = insert
        self._waiting: dict[TenantId, list[PendingJob]] = {}
        self._flights: dict[asyncio.Task[None], Sequence[PendingJob]] = {}
        self._considering = False

    async def add(self, tenant: TenantId, definition: JobDefinition) -> str:
        """The id of the job, once it is committed."""
        loop = asyncio.get_running_loop()
        waiting = PendingJob(definition, loop.create_future())
        self._waiting.setdefault(tenant, []).append(waiting)
        if not self._considering:
            self._considering = True
            loop.call_soon(self._take_off)
        try:
            return await waiting.job_id
        except asyncio.CancelledError:
            self._end_deserted()
            raise

    def _take_off(self) -> None:
        self._considering = False
        while self._waiting and len(self._flights) < _FLIGHTS:
            tenant, everybody = next(iter(self._waiting.items()))
            most = _that_fit(everybody)
            batch, rest = everybody[:most], everybody[most:]
            del self._waiting[tenant]
            if rest:
                self._waiting[tenant] = rest  # behind the other tenants
            flight = asyncio.create_task(self._store(tenant, batch))
            self._flights[flight] = batch
            flight.add_done_callback(self._landed)

    def _landed(self, flight: asyncio.Task[None]) -> None:
        for waiting in self._flights.pop(flight):
            waiting.job_id.cancel()  # nothing, unless the flight itself was cancelled
        self._take_off()

    def _end_deserted(self) -> None:
        """End the flights for which nobody waits any more: the connection may be dead, and others need its place."""
        for flight, batch in self._flights.items():
            if all(waiting.job_id.done() for waiting in batch):
                flight.cancel()

    async def _store(self, tenant: TenantId, batch: Sequence[PendingJob]) -> None:
        batch = [waiting for waiting in batch if not waiting.job_id.done()]
        try:
            job_ids = await self._insert(tenant, [waiting.definition for waiting in batch])
        except AWAY as error:
            _fail(batch, error)  # stored or not, nobody can say
        except Exception as error:  # noqa: BLE001 - handed on to whose it is
            if len(batch) == 1:
                _fail(batch, error)
                return
            middle = len(batch) // 2  # nothing of it is stored: find the one that cannot be
            await self._store(tenant, batch[:middle])
            await self._store(tenant, batch[middle:])
        else:
            for waiting, job_id in zip(batch, job_ids, strict=True):
                if not waiting.job_id.done():
                    waiting.job_id.set_result(job_id)


def _that_fit(everybody: Sequence[PendingJob]) -> int:
    """How many of them go into one insert: at least one."""
    weight = 0
    for count, waiting in enumerate(everybody[:_MOST]):
        weight += len(waiting.definition.payload or "")
        if weight > _MOST_BYTES and count:
            return count
    return min(_MOST, len(everybody))


def _fail(batch: Sequence[PendingJob], error: Exception) -> None:
    for waiting in batch:
        if not waiting.job_id.done():
            waiting.job_id.set_exception(error)
