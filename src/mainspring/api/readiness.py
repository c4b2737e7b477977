"""The readiness check: the database answers, the leases are renewed, and no fire is overdue by more than 10 seconds.

It also says whether the judgement of silent workers is held (upkeep/silence_judge.py). That server is ready all the
same: it takes exchanges, and another server would take no more.
"""

from __future__ import annotations

from collections.abc import Callable

from mainspring.kernel.siblings import SiblingPlace
from mainspring.scheduler.shard_leaser import ShardLeaser
from mainspring.store import fires
from mainspring.store.pool import AWAY, Store
from mainspring.wire.runs import Readiness

_LATE = 10.0


class ReadinessCheck:
    """`leaser` is None if this process does not schedule. `judgement` says "ok", or why judgement is held. `place` is
    that of this process among those of its server."""

    def __init__(
        self,
        store: Store,
        leaser: ShardLeaser | None,
        judgement: Callable[[], str] = lambda: "ok",
        place: SiblingPlace | None = None,
    ) -> None:
        self._store = store
        self._leaser = leaser
        self._judgement = judgement
        self._place = place

    async def check(self) -> Readiness:
        """Of the whole server: all of its processes must be ready."""
        own = await self.check_own()
        if self._place is not None:
            ready, count = self._place.ready_siblings(), self._place.count
            own.checks["processes"] = "ok" if ready == count else f"{ready} of {count} are ready"
            if ready < count:
                own.status = "not ready"
        return own

    async def check_own(self) -> Readiness:
        """Of this process."""
        checks: dict[str, str] = {}
        held = self._leaser.held() if self._leaser else {}
        try:
            async with self._store.reads.acquire(timeout=2) as connection:
                await connection.fetchval("select 1", timeout=2)
                checks["database"] = "ok"
                late = await fires.oldest_due(connection, list(held)) if held else None
        except AWAY as error:
            checks["database"] = f"unavailable: {type(error).__name__}"
            late = None
        if self._leaser is not None:
            checks["leases"] = "ok" if self._leaser.renewing() else "not renewed"
            checks["due"] = "ok" if late is None or late < _LATE else f"{late:.0f} s late"
        ready = all(found == "ok" for found in checks.values())
        checks["judgement"] = self._judgement()
        return Readiness("ready" if ready else "not ready", checks)
