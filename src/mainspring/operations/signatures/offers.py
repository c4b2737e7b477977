"""What live workers offer: the tasks, queues and labels with which they take runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import asyncpg

from mainspring.domain.errors import MainspringError
from mainspring.domain.texts import meant
from mainspring.domain.worker_needs import WorkerNeeds
from mainspring.domain.workflows.flow import SERVER_TASKS
from mainspring.kernel.clock import Clock
from mainspring.kernel.ids import TenantId
from mainspring.kernel.logs import PacedLog, get_logger
from mainspring.operations.access.caller import Caller
from mainspring.store import workers
from mainspring.store.lanes import Lane
from mainspring.store.pool import AWAY, Store
from mainspring.store.workers import Offer

log = get_logger("offers")
_UNREAD = PacedLog(log)  # in an outage it happens to every submission

FOR_A_SERVER = "waiting for a server to start its steps"
_OFFERED_FOR = 30.0  # seconds for which a task counts as offered after it was found so
_MISSING_FOR = 1.0  # seconds after which a task that was missing is looked up again
_PATIENCE = 0.2  # seconds that a submission waits for it
_MOST_TENANTS = 1000
_MOST_WARNINGS = 20
_MOST_SUGGESTIONS = 3  # a task that is spelt alike takes milliseconds to find
_MOST_COMPARED = 200
_MOST_KEPT = 10_000


def lacking(wanted: Lane | WorkerNeeds, offers: Sequence[Offer]) -> str | None:
    """Why no live worker can take such a run. None if one can. A server starts workflow runs."""
    if wanted.task in SERVER_TASKS:
        return FOR_A_SERVER
    missing = _lacking(wanted, [offer for offer in offers if not offer.draining])
    if missing is not None and _lacking(wanted, offers) is None:
        return "every worker that could take it is draining"
    return missing


def _lacking(wanted: Lane | WorkerNeeds, offers: Sequence[Offer]) -> str | None:
    able = [offer for offer in offers if wanted.queue in offer.queues and wanted.task in offer.tasks]
    if not able:
        elsewhere = any(wanted.task in offer.tasks for offer in offers)
        return (
            f"no worker of queue {wanted.queue} offers task {wanted.task}"
            if elsewhere
            else f"no worker offers task {wanted.task}"
        )
    required = wanted.required_labels
    if required is None or any(required.items() <= offer.labels.items() for offer in able):
        return None
    labels = ", ".join(f"{name}={value}" for name, value in sorted(required.items()))
    return f"no worker that offers task {wanted.task} has the required labels {labels}"


def in_words(missing: str, wanted: Lane | WorkerNeeds, offers: Sequence[Offer]) -> str:
    """What is lacking, with the offered task that is spelt alike, or with what happens now."""
    known = set[str]().union(*(offer.tasks for offer in offers))
    waits = "its runs wait until such a worker starts"
    told = wanted.task in known or len(known) > _MOST_COMPARED
    return f"{missing}; {waits if told else meant(wanted.task, known, waits)}"


def untaken(waiting: Iterable[tuple[Lane, int]], offers: Sequence[Offer], most: int) -> list[tuple[str, int]]:
    """How many runs wait for what no live worker offers, by the reason; at most `most` reasons, the largest first."""
    served = _served(offers)
    found: Counter[str] = Counter()
    samples: dict[str, Lane] = {}
    for lane, number in waiting:
        if lane.task in SERVER_TASKS or (not lane.labels and (lane.queue, lane.task) in served):
            continue
        if (missing := lacking(lane, offers)) is not None:
            found[missing] += number
            samples.setdefault(missing, lane)
    return [(in_words(text, samples[text], offers), number) for text, number in found.most_common(most)]


def lacking_by_needs(wanted: Iterable[WorkerNeeds], offers: Sequence[Offer]) -> dict[WorkerNeeds, str]:
    """Why no live worker can take such runs, for those that none can take. At most 20 are checked."""
    served = _served(offers)
    doubtful = [one for one in dict.fromkeys(wanted) if one.labels or (one.queue, one.task) not in served]
    found = ((one, lacking(one, offers)) for one in doubtful[:_MOST_WARNINGS])
    return {one: missing for one, missing in found if missing is not None}


def _served(offers: Sequence[Offer]) -> set[tuple[str, str]]:
    """The queues and tasks of the workers that take new runs."""
    return {(queue, task) for offer in offers if not offer.draining for queue in offer.queues for task in offer.tasks}


class _Snapshot:
    """What the workers of a tenant offered at a time. Unknown if it could not be read."""

    def __init__(self, at: float, offers: Sequence[Offer] | None) -> None:
        self.at = at
        self._offers = offers
        self._served = set() if offers is None else _served(offers)
        self._missing: dict[WorkerNeeds, str | None] = {}

    def serves(self, needs: WorkerNeeds) -> bool:
        """Whether it is certain, and known at once, that a worker takes such runs."""
        if needs.labels:
            return self._missing.get(needs, "") is None
        return needs.task in SERVER_TASKS or (needs.queue, needs.task) in self._served

    def warnings(self, wanted: Iterable[WorkerNeeds]) -> list[str]:
        if self._offers is None:
            return []
        found: list[str] = []
        for needs in wanted:
            if self.serves(needs):
                continue
            if needs not in self._missing:
                if len(self._missing) >= _MOST_KEPT:
                    self._missing.clear()
                self._missing[needs] = lacking(needs, self._offers)
            if (missing := self._missing[needs]) is not None:
                compared = self._offers if len(found) < _MOST_SUGGESTIONS else ()
                found.append(in_words(missing, needs, compared))
                if len(found) == _MOST_WARNINGS:
                    break
        return sorted(found)


class OfferRegistry:
    """Tells those who submit what no live worker takes. A job is accepted anyway: its worker may start later. In normal
    operation the answer comes from memory."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[TenantId, _Snapshot] = {}
        self._reading: dict[TenantId, asyncio.Lock] = {}

    async def warnings(self, caller: Caller, wanted: Collection[WorkerNeeds]) -> list[str]:
        """A sentence for each that no live worker takes, at most 20. It neither fails nor waits for long: what is
        submitted is stored."""
        now, tenant = self._clock.monotonic(), caller.tenant
        known = self._known.get(tenant)
        if known is not None and now - known.at < _OFFERED_FOR and all(map(known.serves, wanted)):
            return []
        if known is None or now - known.at >= _MISSING_FOR:
            known = await self._read(tenant, now)
        return known.warnings(wanted)

    async def _read(self, tenant: TenantId, now: float) -> _Snapshot:
        """Many submissions at once share one statement."""
        if len(self._known) > _MOST_TENANTS:
            self._known.clear()
            self._reading.clear()
        offers: Sequence[Offer] | None = None
        try:
            async with asyncio.timeout(_PATIENCE), self._reading.setdefault(tenant, asyncio.Lock()):
                known = self._known.get(tenant)
                if known is not None and known.at >= now:
                    return known
                async with self._store.reads.acquire() as connection:
                    offers = await workers.offers(connection, tenant)
        except (MainspringError, asyncpg.PostgresError, *AWAY) as error:
            _UNREAD.warning("cannot read what workers offer", tenant=tenant, error=repr(error))
        known = self._known[tenant] = _Snapshot(self._clock.monotonic(), offers)
        return known
