"""What live workers offer: the tasks, queues and labels with which they take runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import asyncpg
import msgspec

from mainspring.domain.errors import MainspringError
from mainspring.domain.texts import meant
from mainspring.domain.worker_needs import WorkerNeeds
from mainspring.domain.workflows.flow import WORKFLOW_TASK
from mainspring.kernel.clock import Clock
from mainspring.kernel.ids import TenantId
from mainspring.kernel.logs import get_logger
from mainspring.operations.access.caller import Caller
from mainspring.store import workers
from mainspring.store.lanes import Lane
from mainspring.store.pool import Store
from mainspring.store.workers import Offer

log = get_logger("offers")

FOR_A_SERVER = "waiting for a server to start its steps"
_OFFERED_FOR = 30.0  # seconds for which a task counts as offered after it was found so
_MISSING_FOR = 1.0  # seconds after which a task that was missing is looked up again
_MOST_TENANTS = 1000
_MOST_WARNINGS = 20
_MOST_KEPT = 10_000


def lacking(wanted: Lane | WorkerNeeds, offers: Sequence[Offer]) -> str | None:
    """Why no live worker can take such a run. None if one can. A server starts workflow runs."""
    if wanted.task == WORKFLOW_TASK:
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
    return f"no worker that offers task {wanted.task} has the required labels {msgspec.json.encode(required).decode()}"


def in_words(missing: str, wanted: Lane | WorkerNeeds, offers: Sequence[Offer]) -> str:
    """What is lacking, with the offered task that is spelt alike, or with what happens now."""
    known = set[str]().union(*(offer.tasks for offer in offers))
    waits = "its runs wait until such a worker starts"
    return f"{missing}; {waits if wanted.task in known else meant(wanted.task, known, waits)}"


class _Known:
    """What was found for a tenant, and when."""

    def __init__(self) -> None:
        self.offered: dict[WorkerNeeds, float] = {}
        self.missing: dict[WorkerNeeds, tuple[float, str]] = {}


class OfferRegistry:
    """Tells those who submit what no live worker takes. A job is accepted anyway: its worker may start later. In normal
    operation the answer comes from memory."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[TenantId, _Known] = {}

    async def warnings(self, caller: Caller, wanted: Iterable[WorkerNeeds]) -> list[str]:
        """A sentence for each that no live worker takes, at most 20. It never fails: what is submitted is stored."""
        now, tenant = self._clock.monotonic(), caller.tenant
        if len(self._known) > _MOST_TENANTS:
            self._known.clear()
        known = self._known.setdefault(tenant, _Known())
        found: list[str] = []
        unknown: list[WorkerNeeds] = []
        for each in wanted:
            if known.offered.get(each, -_OFFERED_FOR) > now - _OFFERED_FOR:
                continue
            at, text = known.missing.get(each, (-_MISSING_FOR, ""))
            if at > now - _MISSING_FOR:
                found.append(text)
            elif each.task != WORKFLOW_TASK:
                unknown.append(each)
        if unknown:
            found += await self._look_up(tenant, known, unknown, now)
        return sorted(found)[:_MOST_WARNINGS]

    async def _look_up(self, tenant: TenantId, known: _Known, unknown: Sequence[WorkerNeeds], now: float) -> list[str]:
        try:
            async with self._store.reads.acquire() as connection:
                offers = await workers.offers(connection, tenant)
        except (MainspringError, OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            log.warning("cannot read what workers offer", tenant=tenant, error=str(error))
            return []
        if len(known.offered) + len(known.missing) + len(unknown) > _MOST_KEPT:
            known.offered.clear()
            known.missing.clear()
        found: list[str] = []
        for each in unknown[:_MOST_KEPT]:
            missing = lacking(each, offers)
            if missing is None:
                known.missing.pop(each, None)
                known.offered[each] = now
            elif len(found) < _MOST_WARNINGS:
                text = in_words(missing, each, offers)
                known.missing[each] = (now, text)
                found.append(text)
        return found
