"""Bounds of the output that is stored in PostgreSQL: for each run, and on each day for each tenant and for all of them.

Output beyond a bound is dropped, and the log gets the visible mark. The worker is told that it is stored, so no report
waits. The bytes of a day are counted in memory and added to the table once a second, so servers may exceed a bound
together by what arrives in a second.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import date

import msgspec

from mainspring.domain.quotas import lower
from mainspring.domain.sizes import format_size
from mainspring.kernel.clock import Clock
from mainspring.kernel.ids import TenantId
from mainspring.kernel.logs import get_logger
from mainspring.operations.logs.log_ranges import whole_characters
from mainspring.store import log_usage
from mainspring.store.log_table import PATIENCE, SLOW_OR_FULL
from mainspring.store.pool import Store
from mainspring.wire.logs import LogChunk

CHUNK_OVERHEAD = 128  # bytes that each chunk counts more than its output: its row and its index entry
_TELL_EVERY = 60.0
_MIB = 1024 * 1024

log = get_logger("log_bounds")


class LogBounds(msgspec.Struct, frozen=True):
    """In bytes. run: of all attempts of a run. tenant: of all runs of a tenant on one day (UTC). day: of all tenants on
    one day."""

    run: int = 200 * _MIB
    tenant: int = 5 * 1024 * _MIB
    day: int = 20 * 1024 * _MIB


DEFAULT_BOUNDS = LogBounds()


class LogBudget:
    """What is left of the bounds of today, as far as this server knows."""

    name = "log_budget"
    interval = 1.0

    def __init__(
        self,
        store: Store,
        clock: Clock,
        bounds: LogBounds = DEFAULT_BOUNDS,
        quota: Callable[[TenantId], int | None] = lambda _: None,
    ) -> None:
        self._store = store
        self._quota = quota
        self._clock = clock
        self.bounds = bounds
        self._day: date | None = None
        self._stored: Counter[TenantId] = Counter()  # by all servers, as of the last look
        self._since: Counter[TenantId] = Counter()  # by this server, since then
        self._asked = False
        self._told_at = float("-inf")

    async def know(self) -> None:
        """Read what was stored today, unless it is known. Output does not wait for this for long."""
        if self._day is None:
            with suppress(*SLOW_OR_FULL):
                async with asyncio.timeout(PATIENCE / 2):
                    await self._look()

    def room(self, tenant: TenantId, of_run: int) -> int:
        """How many bytes a run of this tenant may store. `of_run`: how many it has stored already."""
        self._asked = True
        of_tenant = lower(self.bounds.tenant, self._quota(tenant)) or 0
        today = of_tenant - self._stored[tenant] - self._since[tenant]
        of_all = self.bounds.day - self._stored.total() - self._since.total()
        return max(0, min(self.bounds.run - of_run, today, of_all))

    def spend(self, tenant: TenantId, chunks: int, size: int) -> None:
        self._since[tenant] += size + chunks * CHUNK_OVERHEAD

    def tell(self, tenant: TenantId) -> None:
        """Log that output was dropped; at intervals, because it goes on until the next day."""
        now = self._clock.monotonic()
        if now - self._told_at >= _TELL_EVERY:
            self._told_at = now
            log.warning(
                "output was dropped at a bound",
                tenant=tenant,
                per_run=format_size(self.bounds.run),
                per_tenant_and_day=format_size(lower(self.bounds.tenant, self._quota(tenant)) or 0),
                per_day=format_size(self.bounds.day),
                stored_today=self._stored.total() + self._since.total(),
                hint="raise MAINSPRING_LOG_PER_RUN, _PER_TENANT or _PER_DAY or the quota, or name another --log-store",
            )

    async def run_once(self) -> int:
        """Add what this server has stored to the table, and read what all have stored. Without output it does nothing,
        and the next output makes it look first. Returns the bytes."""
        if not self._asked:
            self._day = None
            return 0
        self._asked = False
        return await self._look()

    async def _look(self) -> int:
        new = Counter(self._since)
        async with self._store.logs.acquire() as connection:
            if new:
                await log_usage.add(connection, new)
                self._since -= new
                self._stored += new  # until the look below
            self._day, found = await log_usage.today(connection)
        self._stored = Counter(found)
        return new.total()


def cut(chunks: Sequence[LogChunk], room: int) -> list[LogChunk]:
    """The chunks of one log without what lies beyond `room` bytes. The last one has the flag of a truncated log if
    something was dropped. Characters stay whole."""
    size = sum(len(chunk.data) for chunk in chunks)
    if size <= room:
        return list(chunks)
    kept: list[LogChunk] = []
    for chunk in chunks:
        data = chunk.data
        if len(data) > room:
            data = data[: whole_characters(data[:room])]
        kept.append(_with(chunk, data))
        room -= len(data)
        if len(data) < len(chunk.data):
            break
    kept[-1].truncated = True
    kept[-1].end = any(chunk.end for chunk in chunks)
    return kept


def _with(chunk: LogChunk, data: bytes) -> LogChunk:
    return LogChunk(chunk.run_id, chunk.fence, chunk.attempt, chunk.offset, data, chunk.truncated, chunk.end)
