"""Whose turn it is at this server: the tenants that wait for the same kind of worker, and the lanes to look at.

A kind of worker is what it may take: queues and tasks, of all tenants or of one. Each kind has virtual times of its
own, so that what a tenant is given by its own workers, or by a pool where nobody else had anything to do, is not held
against it at another.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import attrgetter

from mainspring.domain.fairness import AGING_STEP, FairShares, Rounds
from mainspring.domain.job import Priority
from mainspring.kernel.ids import EVERY_TENANT, TenantId
from mainspring.store.lanes import Lane
from mainspring.store.runs import ClaimedRun

LANES_LOOKED_AT = 1000  # at a time; a look at a lane that is empty is 3 µs
MOST_POOLS = 1000
_kind_of = attrgetter("queue", "task")

Kind = tuple[TenantId, frozenset[tuple[str, str]]]


class FairPool:
    """The tenants that wait for one kind of worker."""

    def __init__(self) -> None:
        self.shares = FairShares()
        self._looking = (Rounds(), Rounds())
        self._taking = (Rounds(), Rounds())

    def to_look_at(self, lanes: Sequence[Lane]) -> Sequence[Lane]:
        """All of them, or a thousand in rotation; critical ones leave the others half of these, or they had no turn."""
        if len(lanes) <= LANES_LOOKED_AT:
            return lanes
        critical, others = _bands(lanes)
        urgent = self._looking[0].choose(critical, max(LANES_LOOKED_AT // 2, LANES_LOOKED_AT - len(others)))
        return urgent + self._looking[1].choose(others, LANES_LOOKED_AT - len(urgent))

    def to_take_from(self, ready: Sequence[Lane], room: int) -> Sequence[Lane]:
        """At most `room` of the lanes that have runs: critical ones first, and tenants in rotation."""
        if len(ready) <= room:
            return ready
        critical, others = _bands(ready)
        urgent = self._taking[0].choose(critical, room)
        return urgent + self._taking[1].choose(others, room - len(urgent))


class FairPools:
    """The pools known at this server; those asked for last. To forget one makes its tenants equal."""

    def __init__(self) -> None:
        self._pools: OrderedDict[Kind, FairPool] = OrderedDict()

    def of(self, lanes: Sequence[Lane]) -> FairPool:
        """The pool of workers that may take from these lanes, which stand with those of each tenant together."""
        one = lanes[0].tenant_id == lanes[-1].tenant_id
        kind: Kind = (lanes[0].tenant_id if one else EVERY_TENANT, frozenset(map(_kind_of, lanes)))
        pool = self._pools.get(kind)
        if pool is None:
            pool = self._pools[kind] = FairPool()
            if len(self._pools) > MOST_POOLS:
                self._pools.popitem(last=False)
        self._pools.move_to_end(kind)
        return pool


def rank(priority: int, ready_at: datetime) -> tuple[int, datetime]:
    """Critical first; the others by how long they wait, a level of priority being worth 5 minutes."""
    return (0 if priority == Priority.CRITICAL else 1, ready_at - priority * AGING_STEP)


def in_fair_order(
    rows: Sequence[ClaimedRun], lanes: Mapping[int, Lane], starts: Mapping[TenantId, int]
) -> list[ClaimedRun]:
    """Claimed rows in the order in which they should start: the one by which `claim_fairly` chose them."""
    ranked = sorted((*rank(lanes[row.lane_id].priority, row.ready_at), index) for index, row in enumerate(rows))
    places: dict[tuple[int, TenantId], int] = {}
    keyed = []
    for band, moment, index in ranked:
        tenant = lanes[rows[index].lane_id].tenant_id
        place = places[band, tenant] = places.get((band, tenant), 0) + 1
        keyed.append((band, starts[tenant] + place, moment, index))
    return [rows[index] for *_, index in sorted(keyed)]


def count_bands(rows: Sequence[ClaimedRun], lanes: Mapping[int, Lane]) -> tuple[Counter[TenantId], Counter[TenantId]]:
    """How many of these rows are critical, and how many are not, by tenant."""
    bands: tuple[Counter[TenantId], Counter[TenantId]] = (Counter(), Counter())
    for row in rows:
        lane = lanes[row.lane_id]
        bands[lane.priority != Priority.CRITICAL][lane.tenant_id] += 1
    return bands


def _bands(lanes: Sequence[Lane]) -> tuple[list[Lane], list[Lane]]:
    critical = [lane for lane in lanes if lane.priority == Priority.CRITICAL]
    return critical, [lane for lane in lanes if lane.priority != Priority.CRITICAL]
