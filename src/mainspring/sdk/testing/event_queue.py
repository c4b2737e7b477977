"""The event queue of a box: the fires of its jobs and its runs that are ready, in the order of their times."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from datetime import datetime

from mainspring.sdk.testing.records import BoxJob, BoxRun


class EventQueue:
    """`numbers` order the runs that are ready at the same time. An entry whose job or run has another time since is
    dropped when it comes first."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self._fires: list[tuple[datetime, int, int, BoxJob]] = []
        self._ready: list[tuple[datetime, int, int, BoxRun]] = []
        self._numbers = numbers

    def arm(self, job: BoxJob, moment: datetime | None) -> None:
        """Set the job's next fire to `moment`. It replaces the previous one."""
        job.arming += 1
        job.next_fire = moment
        if moment is not None:
            heapq.heappush(self._fires, (moment, job.number, job.arming, job))

    def queue(self, run: BoxRun, ready_at: datetime) -> None:
        """Let the run be ready at `ready_at`. At the same time, urgent runs come first, then those queued first."""
        run.ready_at = ready_at
        heapq.heappush(self._ready, (ready_at, -int(run.definition.priority), next(self._numbers), run))

    def next_moment(self) -> datetime | None:
        """The time of the first event."""
        self._drop_outdated()
        return min((entries[0][0] for entries in (self._fires, self._ready) if entries), default=None)

    def due_job(self, now: datetime) -> BoxJob | None:
        """Take the job that fires first, if it fires by `now`."""
        self._drop_outdated()
        return heapq.heappop(self._fires)[3] if self._fires and self._fires[0][0] <= now else None

    def ready_run(self, now: datetime) -> BoxRun | None:
        """Take the run that is ready first, if it is ready by `now`."""
        self._drop_outdated()
        return heapq.heappop(self._ready)[3] if self._ready and self._ready[0][0] <= now else None

    def _drop_outdated(self) -> None:
        while self._fires and self._fires[0][2] != self._fires[0][3].arming:
            heapq.heappop(self._fires)
        while self._ready and (not self._ready[0][3].live or self._ready[0][3].ready_at != self._ready[0][0]):
            heapq.heappop(self._ready)
