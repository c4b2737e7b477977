"""Fair between tenants: whose turn it is when runs of several tenants wait for the same workers. Pure, in memory only.

Start-time fair queuing. Each tenant has a virtual time, which rises by one with every run that is taken; the tenant
with the least is next. Several runs of a tenant stand one behind the other, at its virtual time + 1, + 2 and so on. A
tenant that comes back after a while starts where the least of those that waited all along stands, so that idleness
earns no credit; and never before where it stood itself, so that coming one run at a time earns none either. Critical
runs go first, and count like others: who has many of them waits longer with the rest.

All of it may be forgotten at any moment: everybody is equal then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Protocol, TypeVar

from mainspring.kernel.ids import TenantId

MOST_TENANTS = 10_000
AGING_STEP = timedelta(minutes=5)  # how much longer a run waits that is one level of priority lower


class _OfATenant(Protocol):
    @property
    def tenant_id(self) -> TenantId: ...


L = TypeVar("L", bound=_OfATenant)


class FairShares:
    """The virtual times of the tenants that one kind of worker takes runs of."""

    def __init__(self) -> None:
        self._times: dict[TenantId, int] = {}
        self._waited: set[TenantId] = set()
        self._latest = 0

    def starts(self, looked_at: Iterable[TenantId], waiting: Collection[TenantId]) -> dict[TenantId, int]:
        """Where each tenant of `waiting` stands now. `looked_at` are those whose runs were looked for: who is not
        waiting among them is idle."""
        if len(self._times) > MOST_TENANTS:
            self._times.clear()
            self._waited.clear()
        times = self._times
        # Where nobody waited all along, a new day begins: nobody is ahead, and nobody has a debt.
        least = min((times[tenant] for tenant in waiting if tenant in self._waited), default=self._latest)
        self._waited.difference_update(looked_at)
        self._waited.update(waiting)
        found = {tenant: max(least, times.get(tenant, 0)) for tenant in waiting}
        times.update(found)
        return found

    def taken(
        self, starts: Mapping[TenantId, int], critical: Mapping[TenantId, int], others: Mapping[TenantId, int]
    ) -> None:
        """So many critical runs and others of each tenant were taken, all at once, from where they stood."""
        for counts in (critical, others):
            for tenant, count in counts.items():
                self._times[tenant] = time = self._times.get(tenant, self._latest) + count
                self._latest = max(self._latest, time)
        # Who stands before the last place that was served has nothing left: it would have been served first. Of others
        # than critical runs none were taken while a critical one waited.
        last = max((starts[tenant] + count for tenant, count in (others or critical).items()), default=0)
        for tenant in starts if others else critical:
            self._times[tenant] = max(self._times.get(tenant, 0), last - 1)


class Rounds:
    """Chooses some of many lanes, going round by tenant: everybody has one before anybody has two, and who had none
    this time comes first the next."""

    def __init__(self) -> None:
        self._first = 0
        self._next: dict[TenantId, int] = {}

    def choose(self, lanes: Sequence[L], room: int) -> list[L]:
        """At most `room` of the lanes, which are given with those of each tenant together."""
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
    """`room` dealt out one by one, round after round, to groups that take no more than their size."""
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
