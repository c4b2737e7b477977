"""Runs over a quota of their tenant are HELD (docs/decisions/0102-runs-over-quota-are-shown-as-held.md).

They are stored as QUEUED, behind the gate of the tenant. While a quota lets none of them start, all of them are shown
as HELD, with the quota as the reason. Runs that a worker has claimed have passed it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from mainspring.domain.state_names import named_states
from mainspring.domain.transitions import RunState
from mainspring.kernel.ids import TenantId
from mainspring.operations.limits.gate_views import quota_in_words
from mainspring.operations.read.why import ASSIGNED
from mainspring.store import gates
from mainspring.store.gates import GateState
from mainspring.store.pool import Connection, Store


class ShowsRun(Protocol):
    """A view of a run."""

    reason: str | None

    @property
    def status(self) -> str | None: ...
    @status.setter
    def status(self, value: str, /) -> None: ...


def quota_hold(known: Iterable[GateState]) -> str | None:
    """Why no run of the tenant starts, if that is a quota of its own. `known`: its gates."""
    return next((words for gate in known if gate.queue is None and (words := quota_in_words(gate)) is not None), None)


async def read_quota_hold(connection: Connection, tenant: TenantId) -> str | None:
    return quota_hold(await gates.with_quotas(connection, [tenant]))


async def held_tenants(connection: Connection, tenants: Collection[TenantId]) -> set[TenantId]:
    """Those of these tenants whose quota lets no run start now."""
    known = await gates.with_quotas(connection, tenants) if tenants else []
    return {gate.tenant_id for gate in known if quota_in_words(gate) is not None}


async def quota_hold_in_filter(store: Store, tenant: TenantId, statuses: Sequence[str]) -> str | None:
    """The hold, if a filter by these statuses tells HELD runs from QUEUED ones. Raises InvalidInput."""
    wanted = named_states(statuses)
    if (RunState.HELD in wanted) == (RunState.QUEUED in wanted):
        return None
    async with store.reads.acquire() as connection:
        return await read_quota_hold(connection, tenant)


async def show_quota_holds(connection: Connection, tenant: TenantId, views: Iterable[ShowsRun]) -> None:
    """Show those as HELD that a quota holds. Without a view of a QUEUED run nothing is read."""
    waiting = [view for view in views if _may_be_held(view)]
    if waiting:
        show_held(waiting, await read_quota_hold(connection, tenant))


def show_held(views: Iterable[ShowsRun], hold: str | None) -> None:
    """Show the QUEUED ones as HELD by a quota. `hold`: None if there is none."""
    if hold is not None:
        for view in views:
            if _may_be_held(view):
                view.status, view.reason = RunState.HELD.value, hold


def _may_be_held(view: ShowsRun) -> bool:
    return view.status == RunState.QUEUED and view.reason != ASSIGNED
