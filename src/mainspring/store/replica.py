"""Reads from a standby: which connection a list or a search gets, and how old its answer may be.

How far the standby is behind is measured by positions in the WAL, not by clocks: the position of the primary is noted
with the time, and the standby is as new as the newest noted position that it has replayed.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar

import asyncpg

from mainspring.kernel.logs import get_logger

log = get_logger("replica")

MAX_STALENESS = 5.0  # seconds
_PRIMARY = "select pg_current_wal_insert_lsn()::text"
_STANDBY = "select pg_last_wal_replay_lsn()::text as position where pg_is_in_recovery()"
_PATIENCE = 2.0
_MOST_NOTED = 600

# Set by the API for a request that only reads: what it answers must be as new as this time of the monotonic clock.
# None: from the primary.
reads_since: ContextVar[float | None] = ContextVar("reads_since", default=None)


class Replica:
    """`pool` leads to the standby. `as_of`: everything that was committed before is in it."""

    name = "replica"
    interval = 0.5

    def __init__(
        self,
        primary: asyncpg.Pool,
        pool: asyncpg.Pool,
        max_staleness: float = MAX_STALENESS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pool = pool
        self.max_staleness = max_staleness
        self.as_of: float | None = None
        self._primary = primary
        self._now = now
        self._noted: deque[tuple[float, int]] = deque(maxlen=_MOST_NOTED)
        self._is_used: bool | None = None

    @property
    def staleness(self) -> float:
        return float("inf") if self.as_of is None else self._now() - self.as_of

    def may_answer(self) -> bool:
        """Whether the request of this context may be answered from the standby."""
        since = reads_since.get()
        return since is not None and self.as_of is not None and since < self.as_of and self.is_near

    @property
    def is_near(self) -> bool:
        return self.staleness <= self.max_staleness

    async def run_once(self) -> None:
        """Compare the standby with the primary. A standby without an answer is not used."""
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._compare()
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
            self.forget()
            self._say(repr(error))
            return
        self._say(None if self.is_near else "it is behind")

    async def _compare(self) -> None:
        asked = self._now()
        self._noted.append((asked, _number(await self._primary.fetchval(_PRIMARY))))
        replayed = await self.pool.fetchval(_STANDBY)
        if replayed is None:  # it was promoted: it may be the primary, or a copy without writes
            self.forget()
            return
        position = _number(replayed)
        while self._noted and self._noted[0][1] <= position:
            self.as_of = self._noted.popleft()[0]

    def forget(self) -> None:
        self.as_of = None
        self._noted.clear()

    def _say(self, problem: str | None) -> None:
        used = problem is None
        if used is self._is_used:
            return
        self._is_used = used
        if used:
            log.info("lists and searches are read from the standby")
        else:
            log.warning("lists and searches are read from the primary", why=problem)


def _number(position: str) -> int:
    high, _, low = position.partition("/")
    return (int(high, 16) << 32) + int(low, 16)
