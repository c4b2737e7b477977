"""While PostgreSQL is unavailable, new and pending requests get 503 with Retry-After within two seconds. Submissions
wait for a while first (store/outage_queue.py)."""

from __future__ import annotations

import asyncio
from types import TracebackType

from mainspring.api.web import Scope
from mainspring.domain.errors import Unavailable
from mainspring.kernel.patience import patience_here
from mainspring.store.pulse import Pulse

_STREAMED = ("/logs", "/v1/stream")


class OpenRequests:
    """The pending requests. All of them end when PostgreSQL becomes unavailable."""

    def __init__(self, pulse: Pulse) -> None:
        self._pulse = pulse
        self._limits: dict[asyncio.Timeout, float] = {}
        pulse.on_away(self._end_all)

    def refuse_in_outage(self) -> None:
        if self._pulse.away:
            raise store_down()

    def note(self, error: BaseException) -> None:
        """An error of PostgreSQL that has ended a request."""
        self._pulse.note(error)

    def guarded(self) -> OpenRequest:
        """A request. Raises `store_down` if PostgreSQL is unavailable or becomes so meanwhile. A request that may wait
        for it (kernel/patience.py) gets this error when its time is over."""
        patience = patience_here.get()
        if patience is None:
            self.refuse_in_outage()
        return OpenRequest(self._limits, 0.0 if patience is None else patience.until)

    def _end_all(self) -> None:
        now = asyncio.get_running_loop().time()
        for limit in [limit for limit, until in self._limits.items() if until <= now]:
            del self._limits[limit]
            limit.reschedule(now)


class OpenRequest:
    """As a context: one of `limits`, from which it may be ended at `until`. A class, because a generator costs each
    exchange some microseconds more."""

    __slots__ = ("_limit", "_limits", "_until")

    def __init__(self, limits: dict[asyncio.Timeout, float], until: float) -> None:
        self._limits = limits
        self._until = until
        self._limit = asyncio.timeout(None)

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()
        self._limits[self._limit] = self._until

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._limits.pop(self._limit, None)
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError:
            if self._limit.expired():
                raise store_down() from None
            raise


def survives_outages(scope: Scope) -> bool:
    """Whether it is a stream: it only reads, so it goes on after an outage."""
    path: str = scope["path"]
    return scope["method"] == "GET" and path.endswith(_STREAMED)


def store_down() -> Unavailable:
    """The request may or may not have been carried out. With an idempotency key it can be repeated safely."""
    return Unavailable("the database is unavailable", code="store_down", hint="try again shortly")
