"""Due jobs that could not be fired with their batch: another transaction holds their rows, or has changed them.

A row is held by a change that is under way, or by one whose process is stopped. The jobs that are free are fired, as
they are now. Then one job waits for its row, so that a job which is changed all the time gets its turn. This goes on
until all have fired or are not due any more.
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
    """`fire_free` fires the jobs that no other transaction has locked, and returns how many runs were created and the
    jobs that are still due. `fire_waiting` fires one job and waits for its row. It raises LockNotAvailableError."""

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
        logged = False
        try:
            while self._jobs:
                created += await self._fire_all_free()
                if not self._jobs:
                    break
                key, job = next(iter(self._jobs.items()))
                if not logged:
                    log.info("due jobs are locked by another transaction", jobs=len(self._jobs), first=job.job_id)
                    logged = True
                try:
                    created += await self._fire_waiting(job)
                except asyncpg.LockNotAvailableError:
                    self._jobs[key] = self._jobs.pop(key)  # the next one waits
                else:
                    self._replace(job, None)  # it has fired, or is not due any more
        finally:
            self._jobs.clear()  # also after an error: the due-scan brings them back
        return created

    async def _fire_all_free(self) -> int:
        created = 0
        waiting = list(self._jobs.values())
        for start in range(0, len(waiting), self._batch):
            batch = waiting[start : start + self._batch]
            count, due = await self._fire_free(batch)
            created += count
            still = {job.key: job for job in due}
            for job in batch:
                self._replace(job, still.get(job.key))
        return created

    def _replace(self, job: DueJob, newer: DueJob | None) -> None:
        """Unless the job was added again meanwhile."""
        if self._jobs.get(job.key) is not job:
            return
        if newer is None:
            del self._jobs[job.key]
        else:
            self._jobs[job.key] = newer


def _log_failure(task: asyncio.Task[int]) -> None:
    if task.cancelled() or (error := task.exception()) is None:
        return
    if isinstance(error, AWAY):
        log.warning("held jobs are left to the next scan", error=repr(error))
    else:
        log.error("held jobs could not be fired; they are left to the next scan", exc_info=error)
