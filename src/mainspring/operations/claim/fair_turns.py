"""Which tenant, or which queue of a tenant, is next at this server, and which lanes are checked and claimed from.

The queues and tasks that a worker takes, of all tenants or of one, determine its pool. Each pool has its own virtual
times. So runs that a tenant gets from its own workers, or from a pool where no other tenant waits, do not count against
it in another pool.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import attrgetter

from mainspring.domain.fairness import AGING_STEP, FairShares, Party, Rounds
from mainspring.domain.job import Priority
from mainspring.kernel.ids import EVERY_TENANT, TenantId
from mainspring.store.claimed_runs import ClaimedRun
from mainspring.store.lanes import Lane

MAX_LANES_PER_CHECK = 1000  # the check of an empty lane takes 3 µs
MAX_POOLS = 1000
_queue_and_task = attrgetter("queue", "task")

PoolKey = tuple[TenantId, frozenset[tuple[str, str]]]


class FairPool:
    """The turns of the tenants that wait for the same workers."""

    def __init__(self) -> None:
        self.shares = FairShares()
        self._check_rounds = (Rounds(), Rounds())
        self._claim_rounds = (Rounds(), Rounds())

    def lanes_to_check(self, lanes: Sequence[Lane]) -> Sequence[Lane]:
        """Return all lanes, or a thousand of them in rotation. At least half of these are for lanes that are not
        critical, so that they get a turn."""
        if len(lanes) <= MAX_LANES_PER_CHECK:
            return lanes
        critical, others = _bands(lanes)
        urgent = self._check_rounds[0].choose(
            critical, max(MAX_LANES_PER_CHECK // 2, MAX_LANES_PER_CHECK - len(others))
        )
        return urgent + self._check_rounds[1].choose(others, MAX_LANES_PER_CHECK - len(urgent))

    def lanes_to_claim(self, ready: Sequence[Lane], limit: int) -> Sequence[Lane]:
        """Return at most `limit` of the lanes that have runs: critical lanes first, tenants in rotation."""
        if len(ready) <= limit:
            return ready
        critical, others = _bands(ready)
        urgent = self._claim_rounds[0].choose(critical, limit)
        return urgent + self._claim_rounds[1].choose(others, limit - len(urgent))


class FairPools:
    """The most recently used pools. When a pool is dropped, its tenants start again as equals."""

    def __init__(self) -> None:
        self._pools: OrderedDict[PoolKey, FairPool] = OrderedDict()

    def pool_for(self, lanes: Sequence[Lane]) -> FairPool:
        """Return the pool of the workers that take from these lanes. The lanes of each tenant stand together."""
        one = lanes[0].tenant_id == lanes[-1].tenant_id
        key: PoolKey = (lanes[0].tenant_id if one else EVERY_TENANT, frozenset(map(_queue_and_task, lanes)))
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = FairPool()
            if len(self._pools) > MAX_POOLS:
                self._pools.popitem(last=False)
        self._pools.move_to_end(key)
        return pool


def rank(priority: int, ready_at: datetime) -> tuple[int, datetime]:
    """Sort key of a run: critical runs first, then by waiting time. A level of priority counts as 5 minutes."""
    return (0 if priority == Priority.CRITICAL else 1, ready_at - priority * AGING_STEP)


def in_fair_order(
    rows: Sequence[ClaimedRun], lanes: Mapping[int, Lane], parties: Mapping[int, Party], starts: Mapping[Party, int]
) -> list[ClaimedRun]:
    """Sort claimed rows in the order in which they should start, which is the order in which `claim_fairly` chose
    them. `parties`: who takes turns, by lane."""
    ranked = sorted((*rank(lanes[row.lane_id].priority, row.ready_at), index) for index, row in enumerate(rows))
    places: dict[tuple[int, Party], int] = {}
    keyed = []
    for band, moment, index in ranked:
        party = parties[rows[index].lane_id]
        place = places[band, party] = places.get((band, party), 0) + 1
        keyed.append((band, starts[party] + place, moment, index))
    return [rows[index] for *_, index in sorted(keyed)]


def count_bands(
    rows: Sequence[ClaimedRun], lanes: Mapping[int, Lane], parties: Mapping[int, Party]
) -> tuple[Counter[Party], Counter[Party]]:
    """Count the critical rows and the other rows of each party."""
    bands: tuple[Counter[Party], Counter[Party]] = (Counter(), Counter())
    for row in rows:
        bands[lanes[row.lane_id].priority != Priority.CRITICAL][parties[row.lane_id]] += 1
    return bands


def _bands(lanes: Sequence[Lane]) -> tuple[list[Lane], list[Lane]]:
    critical = [lane for lane in lanes if lane.priority == Priority.CRITICAL]
    return critical, [lane for lane in lanes if lane.priority != Priority.CRITICAL]
