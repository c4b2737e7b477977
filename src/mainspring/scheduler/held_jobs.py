"""Due jobs whose rows somebody holds: a change that is under way, or one whose process is stopped.

They are tried again until they have fired or have changed. One at a time waits for its row, so that a job which is
changed all the time gets its turn. Then those that have become free are fired.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import asyncpg

from mainspring.kernel.logs import get_logger
from mainspring.store.fires import DueJob, JobKey
from mainspring.store.pool import AWAY

log = get_logger("firer")


class HeldJobs:
    """`fire_free` fires what nobody holds, and returns how many runs were created and the jobs that are still held.
    `fire_waiting` fires one job and waits for its row; it raises LockNotAvailableError."""

    def __init__(
        self,
        fire_free: Callable[[Sequence[DueJob]], Awaitable[tuple[int, list[DueJob]]]],
        fire_waiting: Callable[[DueJob], Awaitable[int]],
        batch: int,
    ) -> None:
        self._fire_free = fire_free
        self._fire_waiting = fire_waiting
        self._batch = batch
        self._jobs: dict[JobKey, DueJob] = {}
        self._task: asyncio.Task[int] | None = None

    def __contains__(self, key: JobKey) -> bool:
        return key in self._jobs

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, jobs: Sequence[DueJob]) -> None:
        if not jobs:
            return
        log.info("due jobs are held by another transaction", jobs=len(jobs), first=jobs[0].job_id)
        self._jobs.update((job.key, job) for job in jobs)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(_log_failure)

    async def wait(self) -> int:
        """Wait until no job is held any more; returns how many runs were created. For tests."""
        task = self._task
        if task is None:
            return 0
        try:
            return await task
        finally:
            if self._task is task:
                self._task = None

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> int:
        created = 0
        try:
            while self._jobs:
                key, job = next(iter(self._jobs.items()))
                try:
                    created += await self._fire_waiting(job)
                except asyncpg.LockNotAvailableError:
                    self._jobs[key] = self._jobs.pop(key)  # the next one waits
                else:
                    del self._jobs[key]  # it has fired, or has changed: then the due-scan finds it
                others = list(self._jobs.values())
                for start in range(0, len(others), self._batch):
                    batch = others[start : start + self._batch]
                    count, held = await self._fire_free(batch)
                    created += count
                    for key in {each.key for each in batch} - {each.key for each in held}:
                        del self._jobs[key]
        finally:
            self._jobs.clear()  # also after an error: the due-scan brings them back
        return created


def _log_failure(task: asyncio.Task[int]) -> None:
    if task.cancelled() or (error := task.exception()) is None:
        return
    if isinstance(error, AWAY):
        log.warning("held jobs are left to the next scan", error=repr(error))
    else:
        log.error("held jobs could not be fired; they are left to the next scan", exc_info=error)
