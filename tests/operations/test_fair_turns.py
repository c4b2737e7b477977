"""Which of many lanes are checked and claimed from, and that the number of pools in memory is bounded."""

from __future__ import annotations

from mainspring.domain.job import Priority
from mainspring.kernel.ids import TenantId
from mainspring.operations.claim.fair_turns import MAX_LANES_PER_CHECK, MAX_POOLS, FairPool, FairPools
from mainspring.store.lanes import Lane


def lanes(tenant: int, count: int, *, first: int = 0, priority: int = Priority.NORMAL) -> list[Lane]:
    return [
        Lane(tenant * 100_000 + number, TenantId(tenant), "default", int(priority), f"t{number}")
        for number in range(first, first + count)
    ]


def test_up_to_a_thousand_lanes_are_all_looked_at() -> None:
    some = lanes(1, 500) + lanes(2, 500)
    assert FairPool().lanes_to_check(some) == some


def test_of_more_every_lane_has_its_turn_and_every_tenant_every_turn() -> None:
    some = lanes(1, 2500) + lanes(1, 800, first=5000, priority=Priority.CRITICAL) + lanes(2, 1) + lanes(3, 2)
    pool = FairPool()
    seen: set[int] = set()
    for _ in range(6):
        looked_at = pool.lanes_to_check(some)
        assert len(looked_at) == len({lane.lane_id for lane in looked_at}) == MAX_LANES_PER_CHECK
        assert {lane.tenant_id for lane in looked_at} == {1, 2, 3}
        seen.update(lane.lane_id for lane in looked_at)
    assert seen == {lane.lane_id for lane in some}


def test_critical_lanes_take_what_the_others_have_no_use_for() -> None:
    some = lanes(1, 1500, priority=Priority.CRITICAL) + lanes(2, 10)
    looked_at = FairPool().lanes_to_check(some)
    assert len(looked_at) == MAX_LANES_PER_CHECK
    assert set(lanes(2, 10)) <= set(looked_at)


def test_critical_lanes_that_have_runs_come_first() -> None:
    critical = lanes(1, 40, first=500, priority=Priority.CRITICAL) + lanes(2, 2, first=500, priority=Priority.CRITICAL)
    normal = lanes(1, 100) + lanes(3, 1)
    pool = FairPool()
    chosen = pool.lanes_to_claim(sorted(critical + normal, key=lambda lane: lane.tenant_id), 64)
    assert len(chosen) == 64
    assert set(critical) <= set(chosen)
    assert lanes(3, 1)[0] in chosen
    assert set(pool.lanes_to_claim(critical + normal, 20)) <= set(critical)


def test_workers_that_take_the_same_share_a_pool_and_few_pools_are_remembered() -> None:
    pools = FairPools()
    shared = lanes(1, 3) + lanes(2, 3)
    first = pools.pool_for(shared)
    assert pools.pool_for(lanes(7, 3) + lanes(8, 2)) is first
    assert pools.pool_for(lanes(1, 4) + lanes(2, 3)) is not first
    assert pools.pool_for(lanes(1, 3)) is not first, "a tenant's own workers have a pool of their own"
    for number in range(MAX_POOLS + 50):
        pools.pool_for(lanes(1, 1, first=1000 + number))
        if number < 50:
            assert pools.pool_for(shared) is first, "it was used recently"
    assert pools.pool_for(shared) is not first
