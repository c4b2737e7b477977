"""The log watch polls all followed runs in one query, twice a second. While no run is followed it makes no query.

Followers learn of a chunk that arrives at this server at once, without a query. The state of a run is always read
together with its logs, so no follower leaves an attempt before all its output is known. The watch stores the latest
state and wakes the followers. So a slow reader blocks nothing and misses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from uuid import UUID

from mainspring.kernel.ids import TenantId
from mainspring.operations.live.connection_quota import ConnectionQuota
from mainspring.store import logs
from mainspring.store.logs import LogRow, LogState
from mainspring.store.pool import AWAY, Store

MOST_FOLLOWERS = 1000  # of a server
MOST_OF_CALLER = 100  # of a session, or of a token


class Followed:
    """A run that is followed here. `state` is its latest known state, or None if the run has expired."""

    def __init__(self, tenant: TenantId, state: LogState) -> None:
        self.tenant = tenant
        self.state: LogState | None = state
        self.news: set[asyncio.Event] = set()

    def update(self, state: LogState | None) -> None:
        if state != self.state:
            self.state = state
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
        self._early_query: asyncio.Task[None] | None = None
        self.quota = ConnectionQuota("followed logs", MOST_FOLLOWERS, MOST_OF_CALLER)
        self.closed = False

    @contextmanager
    def following(self, tenant: TenantId, run_id: UUID, state: LogState) -> Iterator[tuple[Followed, asyncio.Event]]:
        """The followed run, and an event that is set whenever its state changes."""
        followed = self._followed.get(run_id)
        if followed is None:
            followed = self._followed[run_id] = Followed(tenant, state)
        else:
            followed.update(_latest(followed.state, state))
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
        """Read the states of the followed runs. Return how many runs are followed."""
        asked = list(self._followed.items())
        if asked:
            async with self._store.hot.acquire() as connection:
                found = await logs.states(connection, [(followed.tenant, run_id) for run_id, followed in asked])
            for run_id, followed in asked:
                followed.update(_latest(followed.state, found.get(run_id)))
        return len(asked)

    def arrived(self, run_id: UUID, log: LogRow) -> None:
        """New output of the run became valid at this server."""
        followed = self._followed.get(run_id)
        if followed is None or followed.state is None:
            return
        known = followed.state
        followed.update(LogState(known.state, known.attempt, known.over, _latest_logs(known.logs, {log.attempt: log})))
        if log.attempt > known.attempt and (self._early_query is None or self._early_query.done()):
            # Another attempt has begun. The last output of the previous one may have arrived at another server.
            self._early_query = asyncio.create_task(self._query_early())

    async def _query_early(self) -> None:
        with suppress(*AWAY):
            await self.run_once()

    def close(self) -> None:
        """The server stops: disconnect every follower. It can continue at another server."""
        self.closed = True
        if self._early_query is not None:
            self._early_query.cancel()
        for followed in self._followed.values():
            followed.wake()


def _latest(known: LogState | None, seen: LogState | None) -> LogState | None:
    """The state that was read, with the longer of both logs: bytes may have arrived here during the query."""
    if known is None or seen is None:
        return seen
    return LogState(seen.state, seen.attempt, seen.over, _latest_logs(known.logs, seen.logs))


def _latest_logs(known: dict[int, LogRow], seen: dict[int, LogRow]) -> dict[int, LogRow]:
    return {attempt: _further(known.get(attempt), seen.get(attempt)) for attempt in sorted(known.keys() | seen.keys())}


def _further(one: LogRow | None, other: LogRow | None) -> LogRow:
    if one is None or other is None or one.fence != other.fence:
        return max((log for log in (one, other) if log is not None), key=lambda log: log.fence)
    return LogRow(
        one.attempt, one.fence, max(one.bytes, other.bytes), one.truncated or other.truncated, one.ended or other.ended
    )
