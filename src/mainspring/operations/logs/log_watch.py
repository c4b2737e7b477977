"""News of followed runs: one look for all of them, twice a second, and none while nobody follows.

A chunk that arrives at this server is told to its followers at once, without a look. How the run itself stands is only
ever looked up, together with its logs: so nobody leaves an attempt before all that it printed is known. To tell is to
put down the latest and to wake whoever waits, so a reader who is slow holds up nobody and misses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from uuid import UUID

from mainspring.kernel.ids import TenantId
from mainspring.store import logs
from mainspring.store.logs import AttemptLog, Standing
from mainspring.store.pool import AWAY, Store


class Followed:
    """A run that somebody follows here. `standing` is the latest that is known; None when the run has expired."""

    def __init__(self, tenant: TenantId, standing: Standing) -> None:
        self.tenant = tenant
        self.standing: Standing | None = standing
        self.news: set[asyncio.Event] = set()

    def tell(self, standing: Standing | None) -> None:
        if standing != self.standing:
            self.standing = standing
            self.wake()

    def wake(self) -> None:
        for news in self.news:
            news.set()


class LogWatch:
    name = "log_watch"
    interval = 0.5

    def __init__(self, store: Store) -> None:
        self._store = store
        self._followed: dict[UUID, Followed] = {}
        self._early: asyncio.Task[None] | None = None
        self.closed = False

    @contextmanager
    def following(self, tenant: TenantId, run_id: UUID, standing: Standing) -> Iterator[tuple[Followed, asyncio.Event]]:
        """What is known of the run, and an event that is set whenever that changes."""
        followed = self._followed.get(run_id)
        if followed is None:
            followed = self._followed[run_id] = Followed(tenant, standing)
        else:
            followed.tell(_latest(followed.standing, standing))
        news = asyncio.Event()
        followed.news.add(news)
        try:
            yield followed, news
        finally:
            followed.news.discard(news)
            if not followed.news:
                del self._followed[run_id]

    @property
    def runs(self) -> int:
        """How many runs are followed here."""
        return len(self._followed)

    async def run_once(self) -> int:
        """Look how the followed runs stand; returns how many those are."""
        asked = list(self._followed.items())
        if asked:
            async with self._store.hot.acquire() as connection:
                found = await logs.standings(connection, [(followed.tenant, run_id) for run_id, followed in asked])
            for run_id, followed in asked:
                followed.tell(_latest(followed.standing, found.get(run_id)))
        return len(asked)

    def arrived(self, run_id: UUID, log: AttemptLog) -> None:
        """Output of the run has been counted at this server."""
        followed = self._followed.get(run_id)
        if followed is None or followed.standing is None:
            return
        known = followed.standing
        followed.tell(Standing(known.state, known.attempt, known.over, _latest_logs(known.logs, {log.attempt: log})))
        if log.attempt > known.attempt and (self._early is None or self._early.done()):
            # A further attempt has begun. What the one before it printed last may have gone by another server.
            self._early = asyncio.create_task(self._look_early())

    async def _look_early(self) -> None:
        with suppress(*AWAY):
            await self.run_once()

    def close(self) -> None:
        """The server stops: whoever follows a log is let go, and asks elsewhere for the rest."""
        self.closed = True
        if self._early is not None:
            self._early.cancel()
        for followed in self._followed.values():
            followed.wake()


def _latest(known: Standing | None, seen: Standing | None) -> Standing | None:
    """What was seen, and of logs what is furthest: bytes may have arrived here while we looked."""
    if known is None or seen is None:
        return seen
    return Standing(seen.state, seen.attempt, seen.over, _latest_logs(known.logs, seen.logs))


def _latest_logs(known: dict[int, AttemptLog], seen: dict[int, AttemptLog]) -> dict[int, AttemptLog]:
    return {attempt: _further(known.get(attempt), seen.get(attempt)) for attempt in sorted(known.keys() | seen.keys())}


def _further(one: AttemptLog | None, other: AttemptLog | None) -> AttemptLog:
    if one is None or other is None or one.fence != other.fence:
        return max((log for log in (one, other) if log is not None), key=lambda log: log.fence)
    return AttemptLog(
        one.attempt, one.fence, max(one.bytes, other.bytes), one.truncated or other.truncated, one.ended or other.ended
    )
