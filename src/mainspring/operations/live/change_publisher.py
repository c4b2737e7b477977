"""The change publisher counts what has changed, by tenant and list, while any server of the cluster has a stream open.

Nothing is added to a transaction. Requests and exchanges count in memory. Twice a second a server sends its counts to
the others, in one NOTIFY on a channel of its own. A server with streams says every few seconds that it wants to know;
without such a server nothing is counted and nothing is sent. A count may be lost: browsers also poll, slowly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from uuid import UUID

from mainspring.kernel.clock import Clock
from mainspring.kernel.ids import EVERY_TENANT, TenantId
from mainspring.operations.live.topics import JOBS, LISTS, QUEUES, RUNS
from mainspring.operations.signals import Signals
from mainspring.store import watched_objects
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import Store
from mainspring.wire.exchange import ExchangeReply, ExchangeRequest

Counts = Mapping[tuple[TenantId, str], int]

_ASK_EVERY = 5.0  # seconds between two messages that streams are open
_ASKED_FOR = 15.0  # seconds for which such a message counts
_MOST_PAIRS = 400  # in one message: the payload of NOTIFY is limited to 8,000 bytes
_MOST_RUNS = 500  # of shared workers, whose tenants are looked up together; the rest is left to the polls
_WATCHED, _COUNTS = "watched", "counts"


class ChangePublisher:
    """`has_streams` says whether streams are open at this server."""

    def __init__(
        self, store: Store, signals: Signals, lanes: LaneRegistry, clock: Clock, has_streams: Callable[[], bool]
    ) -> None:
        self._store = store
        self._signals = signals
        self._lanes = lanes
        self._clock = clock
        self._has_streams = has_streams
        self._own: Counter[tuple[TenantId, str]] = Counter()
        self._heard: Counter[tuple[TenantId, str]] = Counter()
        self._runs: set[UUID] = set()
        self._new_lanes: Counter[int] = Counter()
        self._wanted_until = self._ask_at = float("-inf")
        signals.ready.subscribe(self._on_ready)
        signals.exchanged.subscribe(self._on_exchanged)
        signals.lists_changed.subscribe(self.add)
        signals.live.subscribe(self._on_message)

    @property
    def wanted(self) -> bool:
        """Whether a stream is open, here or at another server."""
        return self._has_streams() or self._clock.monotonic() < self._wanted_until

    def add(self, tenant: TenantId, lists: Iterable[str], count: int = 1) -> None:
        """Count a change of this tenant at this server. The next `take` sends it to the other servers."""
        if self.wanted:
            for name in lists:
                self._own[tenant, name] += count

    async def take(self) -> Counts:
        """Return what has changed since the last call, here and elsewhere, and send the changes of this server to the
        others."""
        await self._ask()
        if self._runs:
            await self._look_up_tenants()
        if self._new_lanes:
            await self._lanes.refresh()
            created, self._new_lanes = self._new_lanes, Counter()
            self._count_created(created)
        own, self._own = self._own, Counter()
        heard, self._heard = self._heard, Counter()
        pairs = list(own.items())
        for first in range(0, len(pairs), _MOST_PAIRS):
            await self._signals.send_live(_COUNTS, _spelled(pairs[first : first + _MOST_PAIRS]))
        heard.update(own)
        return heard

    async def _ask(self) -> None:
        """Ask the other servers to count as well."""
        now = self._clock.monotonic()
        if self._has_streams() and now >= self._ask_at:
            self._ask_at = now + _ASK_EVERY
            await self._signals.send_live(_WATCHED, "-")

    async def _look_up_tenants(self) -> None:
        runs, self._runs = self._runs, set()
        async with self._store.hot.acquire() as connection:
            for tenant, count in await watched_objects.tenants_of_runs(connection, runs):
                self.add(tenant, (RUNS, QUEUES), count)

    def _on_ready(self, created: Mapping[int, int]) -> None:
        """Runs were created or came back. Every server gets this signal, so it is not sent again."""
        if self._has_streams():
            self._new_lanes.update(self._count_created(created))

    def _count_created(self, created: Mapping[int, int]) -> dict[int, int]:
        """Return those of lanes that this server does not know yet."""
        unknown = {}
        for lane_id, count in created.items():
            lane = self._lanes.peek(lane_id)
            if lane is None:
                unknown[lane_id] = count
                continue
            for name in (RUNS, QUEUES, JOBS):
                self._heard[lane.tenant_id, name] += count
        return unknown

    def _on_exchanged(self, tenant: TenantId, request: ExchangeRequest, reply: ExchangeReply | None) -> None:
        if not self.wanted:
            return
        if reply is None:
            count, ids = len(request.started) + len(request.progress), (start[0] for start in request.started)
        else:
            count = len(request.outcomes) + len(reply.runs)
            ids = (item.run_id for items in (request.outcomes, reply.runs) for item in items)
        if tenant != EVERY_TENANT:
            if count:
                self.add(tenant, (RUNS, QUEUES), count)
        elif len(self._runs) < _MOST_RUNS:
            self._runs.update(islice(ids, _MOST_RUNS))

    def _on_message(self, kind: str, names: str) -> None:
        if kind == _WATCHED:
            self._wanted_until = self._clock.monotonic() + _ASKED_FOR
        elif kind == _COUNTS and self._has_streams():
            self._heard.update(_read(names))


def _spelled(pairs: Iterable[tuple[tuple[TenantId, str], int]]) -> str:
    return ",".join(f"{tenant}:{LISTS.index(name)}:{count}" for (tenant, name), count in pairs)


def _read(names: str) -> dict[tuple[TenantId, str], int]:
    items = (item.split(":") for item in names.split(","))
    return {(TenantId(int(tenant)), LISTS[int(name)]): int(count) for tenant, name, count in items}
