"""Readiness means progress: the database answers, leases are renewed, and what is due is young."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mainspring.store import fires
from mainspring.store.pool import AWAY, Store
from mainspring.wire.runs import Readiness

_LATE = 10.0


class ReadinessCheck:
    """`leases` answers the shards this process holds, or None when it schedules nothing."""

    def __init__(self, store: Store, leases: Callable[[], Mapping[int, int] | None]) -> None:
        self._store = store
        self._leases = leases

    async def check(self) -> Readiness:
        checks: dict[str, str] = {}
        held = self._leases()
        try:
            async with self._store.reads.acquire(timeout=2) as connection:
                await connection.fetchval("select 1", timeout=2)
                checks["database"] = "ok"
                late = await fires.oldest_due(connection, list(held)) if held else None
        except AWAY as error:
            checks["database"] = f"away: {type(error).__name__}"
            late = None
        if held is not None:
            checks["leases"] = "ok" if held else "none held"
            checks["due"] = "ok" if late is None or late < _LATE else f"{late:.0f} s late"
        ready = checks["database"] == "ok" and checks.get("due", "ok") == "ok"
        return Readiness("ready" if ready else "not ready", checks)
