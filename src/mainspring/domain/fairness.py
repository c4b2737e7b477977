"""Fairness between tenants: decides whose runs are claimed next when several tenants wait for the same workers. The
queues of one tenant take turns in the same way, where only this tenant waits.

This is start-time fair queuing. Each tenant has a virtual time, which rises by one with every run that is claimed. The
tenant with the lowest virtual time is next. The waiting runs of one tenant have the virtual times + 1, + 2 and so on.

A tenant that was idle continues at the lowest virtual time of the tenants that kept waiting, so that idleness earns no
credit. It never continues below its own virtual time, so that submitting one run at a time earns no credit either.
Critical runs are claimed first and count like other runs. A tenant with many of them waits longer with its other runs.

The state is in memory only and can be lost at any time. All tenants are equal then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Protocol, TypeVar

from mainspring.kernel.ids import TenantId

MOST_TENANTS = 10_000
Party = int  # the number of a tenant or of a queue
AGING_STEP = timedelta(minutes=5)  # how much longer a run waits that is one level of priority lower


class _HasTenant(Protocol):
    @property
    def tenant_id(self) -> TenantId: ...


L = TypeVar("L", bound=_HasTenant)


class FairShares:
    """The virtual times of the tenants, or of the queues of one tenant, that share one kind of worker."""

    def __init__(self) -> None:
        self._times: dict[Party, int] = {}
        self._waited: set[Party] = set()
        self._latest = 0

    def starts(self, looked_at: Iterable[Party], waiting: Collection[Party]) -> dict[Party, int]:
        """The virtual time of each tenant in `waiting`. `looked_at` are the tenants whose lanes were read. A tenant of
        `looked_at` that is not in `waiting` is idle."""
        if len(self._times) > MOST_TENANTS:
            self._times.clear()
            self._waited.clear()
        times = self._times
        # If no tenant kept waiting, all start at the latest virtual time.
        least = min((times[tenant] for tenant in waiting if tenant in self._waited), default=self._latest)
        self._waited.difference_update(looked_at)
        self._waited.update(waiting)
        found = {tenant: max(least, times.get(tenant, 0)) for tenant in waiting}
        times.update(found)
        return found

    def taken(self, starts: Mapping[Party, int], critical: Mapping[Party, int], others: Mapping[Party, int]) -> None:
        """Count the critical and the other runs of each tenant that one claim took."""
        for counts in (critical, others):
            for tenant, count in counts.items():
                self._times[tenant] = time = self._times.get(tenant, self._latest) + count
                self._latest = max(self._latest, time)
        # A tenant below the last virtual time that was served has no waiting runs left, because it would have been
        # served first. Other runs are only taken when no critical run waits.
        last = max((starts[tenant] + count for tenant, count in (others or critical).items()), default=0)
        for tenant in starts if others else critical:
            self._times[tenant] = max(self._times.get(tenant, 0), last - 1)


class Rounds:
    """Chooses some of many lanes, round robin by tenant. Every tenant gets one lane before any tenant gets two. Tenants
    that got none are first in the next round."""

    def __init__(self) -> None:
        self._first = 0
        self._next: dict[TenantId, int] = {}

    def choose(self, lanes: Sequence[L], room: int) -> list[L]:
        """Choose at most `room` lanes. The lanes of one tenant must be adjacent in `lanes`."""
        if len(lanes) <= room:
            return list(lanes)
        groups = [list(group) for _, group in groupby(lanes, key=lambda lane: lane.tenant_id)]
        start = self._first % len(groups)
        groups = groups[start:] + groups[:start]
        self._first = start + (room if len(groups) > room else 0)
        if len(self._next) > MOST_TENANTS:
            self._next.clear()
        shares = _shares([len(group) for group in groups], room)
        chosen: list[L] = []
        for group, share in zip(groups, shares, strict=True):
            tenant, size = group[0].tenant_id, len(group)
            at = self._next.get(tenant, 0) % size
            self._next[tenant] = at + share
            chosen += (group + group)[at : at + share]
        return chosen


def _shares(sizes: Sequence[int], room: int) -> list[int]:
    """Distribute `room` one by one over the groups. No group gets more than its size."""
    shares = [0] * len(sizes)
    while room > 0:
        open_groups = [index for index, size in enumerate(sizes) if shares[index] < size]
        if not open_groups:
            break
        each = max(1, min(room // len(open_groups), min(sizes[index] - shares[index] for index in open_groups)))
        for index in open_groups[:room] if each == 1 else open_groups:
            shares[index] += each
            room -= each
    return shares
