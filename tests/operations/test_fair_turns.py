"""Which lanes of many are looked at and taken from, and that what a server remembers of pools is bounded."""

from __future__ import annotations

from mainspring.domain.job import Priority
from mainspring.kernel.ids import TenantId
from mainspring.operations.exchange.fair_turns import LANES_LOOKED_AT, MOST_POOLS, FairPool, FairPools
from mainspring.store.lanes import Lane


def lanes(tenant: int, count: int, *, first: int = 0, priority: int = Priority.NORMAL) -> list[Lane]:
    return [
        Lane(tenant * 100_000 + number, TenantId(tenant), "default", int(priority), f"t{number}")
        for number in range(first, first + count)
    ]


def test_up_to_a_thousand_lanes_are_all_looked_at() -> None:
    some = lanes(1, 500) + lanes(2, 500)
    assert FairPool().to_look_at(some) == some


def test_of_more_every_lane_has_its_turn_and_every_tenant_every_turn() -> None:
    some = lanes(1, 2500) + lanes(1, 800, first=5000, priority=Priority.CRITICAL) + lanes(2, 1) + lanes(3, 2)
    pool = FairPool()
    seen: set[int] = set()
    for _ in range(6):
        looked_at = pool.to_look_at(some)
        assert len(looked_at) == len({lane.lane_id for lane in looked_at}) == LANES_LOOKED_AT
        assert {lane.tenant_id for lane in looked_at} == {1, 2, 3}
        seen.update(lane.lane_id for lane in looked_at)
    assert seen == {lane.lane_id for lane in some}


def test_critical_lanes_take_what_the_others_have_no_use_for() -> None:
    some = lanes(1, 1500, priority=Priority.CRITICAL) + lanes(2, 10)
    looked_at = FairPool().to_look_at(some)
    assert len(looked_at) == LANES_LOOKED_AT
    assert set(lanes(2, 10)) <= set(looked_at)


def test_critical_lanes_that_have_runs_come_first() -> None:
    critical = lanes(1, 40, first=500, priority=Priority.CRITICAL) + lanes(2, 2, first=500, priority=Priority.CRITICAL)
    normal = lanes(1, 100) + lanes(3, 1)
    pool = FairPool()
    chosen = pool.to_take_from(sorted(critical + normal, key=lambda lane: lane.tenant_id), 64)
    assert len(chosen) == 64
    assert set(critical) <= set(chosen)
    assert lanes(3, 1)[0] in chosen
    assert set(pool.to_take_from(critical + normal, 20)) <= set(critical)


def test_workers_that_take_the_same_share_a_pool_and_few_pools_are_remembered() -> None:
    pools = FairPools()
    shared = lanes(1, 3) + lanes(2, 3)
    first = pools.of(shared)
    assert pools.of(lanes(7, 3) + lanes(8, 2)) is first
    assert pools.of(lanes(1, 4) + lanes(2, 3)) is not first
    assert pools.of(lanes(1, 3)) is not first, "what a tenant's own workers do for it is not counted among others"
    for number in range(MOST_POOLS + 50):
        pools.of(lanes(1, 1, first=1000 + number))
        if number < 50:
            assert pools.of(shared) is first, "asked for of late"
    assert pools.of(shared) is not first
