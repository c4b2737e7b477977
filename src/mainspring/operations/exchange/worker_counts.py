"""How many live workers each tenant has, as far as a hello needs to know.

Thousands of workers say hello together when a deployment restarts them. If each hello counted the others, that would
take the square of their number. So the count is kept for a while, and what registers here is added. Only near the limit
each hello counts.
"""

from __future__ import annotations

from uuid import UUID

from mainspring.kernel.clock import Clock
from mainspring.kernel.ids import TenantId
from mainspring.store import workers
from mainspring.store.pool import Connection

_KEPT = 5.0  # seconds
_NEAR = 0.9  # of the limit
_MOST_TENANTS = 10_000


class WorkerCounts:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: dict[TenantId, tuple[float, int]] = {}  # when it was read, and the count

    async def is_full(self, connection: Connection, tenant: TenantId, worker_id: UUID, most: int) -> bool:
        """Whether the tenant has `most` live workers without this one. A count that is at most 5 s old decides while it
        is far below that."""
        now = self._clock.monotonic()
        read_at, count = self._counts.get(tenant, (float("-inf"), 0))
        if now - read_at >= _KEPT:
            if len(self._counts) >= _MOST_TENANTS:
                self._counts.clear()
            count = await workers.count_others(connection, tenant, None, most)
            read_at = now
        self._counts[tenant] = (read_at, count + 1)
        if count < _NEAR * most:
            return False
        return await workers.count_others(connection, tenant, worker_id, most) >= most
