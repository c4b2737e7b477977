"""FEATURES 5.5: fairness between tenants by virtual time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.fairness import MOST_TENANTS, FairShares, Rounds
from mainspring.kernel.ids import TenantId

A, B, C = TenantId(2), TenantId(3), TenantId(4)


class Line:
    """The waiting runs of each tenant, and a server that claims them. Ties go to the tenant that is listed first."""

    def __init__(self, **waiting: int) -> None:
        self.shares = FairShares()
        self.waiting = Counter({_named(name): count for name, count in waiting.items()})

    def add(self, **more: int) -> None:
        for name, count in more.items():
            self.waiting[_named(name)] += count

    def take(self, count: int = 1) -> list[TenantId]:
        """Claims like the server: the runs of a tenant have increasing virtual times."""
        some = [tenant for tenant, left in self.waiting.items() if left]
        starts = self.shares.starts((A, B, C), some)
        line = sorted((starts[t] + place, t) for t in some for place in range(1, min(self.waiting[t], count) + 1))
        taken = [tenant for _, tenant in line[:count]]
        self.shares.taken(starts, {}, Counter(taken))
        self.waiting -= Counter(taken)
        return taken


def _named(name: str) -> TenantId:
    return {"a": A, "b": B, "c": C}[name]


def test_two_tenants_take_turns_however_much_one_of_them_has() -> None:
    line = Line(a=10_000, b=10)
    assert [line.take()[0] for _ in range(6)] == [A, B] * 3


def test_a_batch_is_shared_out_as_single_runs_would_be() -> None:
    line = Line(a=1000, b=1000, c=1000)
    assert Counter(line.take(30)) == {A: 10, B: 10, C: 10}
    assert Counter(line.take(1) + line.take(1) + line.take(1)) == {A: 1, B: 1, C: 1}


def test_what_one_does_not_use_the_others_get() -> None:
    line = Line(a=1000, b=3, c=1000)
    assert Counter(line.take(43)) == {A: 20, B: 3, C: 20}


def test_a_tenant_that_was_idle_gets_no_burst() -> None:
    line = Line(a=10_000, b=1)
    line.take(5000)
    line.add(b=1000)
    assert Counter(line.take(100)) == {A: 50, B: 50}


def test_a_tenant_that_was_busy_alone_is_not_punished_for_it() -> None:
    line = Line(a=10_000)
    line.take(10_000)
    line.add(b=1000)
    line.take(10)
    line.add(a=1000)
    assert Counter(line.take(100)) == {A: 50, B: 50}


def test_coming_one_run_at_a_time_earns_nothing() -> None:
    """A is listed first and wins every tie. If it started at the lowest virtual time each time, B would get nothing."""
    line = Line(b=1000)
    got: Counter[TenantId] = Counter()
    for _ in range(100):
        line.waiting[A] = 1
        got.update(line.take())
    assert got == {A: 50, B: 50}


def test_after_a_pause_of_everybody_all_are_equal() -> None:
    line = Line(a=1, b=101)
    line.take(102)
    line.add(a=100, b=100)
    assert Counter(line.take(99)) == {A: 50, B: 49}


def test_critical_runs_count_and_who_has_none_catches_up() -> None:
    shares = FairShares()
    shares.taken(shares.starts([A, B], [A, B]), {A: 10}, {A: 1, B: 1})
    starts = shares.starts([A, B], [A, B])
    assert starts[A] - starts[B] == 10


def test_one_critical_run_among_many_of_another_earns_no_credit() -> None:
    shares = FairShares()
    shares.taken(shares.starts([A, B], [A, B]), {A: 500, B: 1}, {})
    starts = shares.starts([A, B], [A, B])
    assert starts[A] - starts[B] == 1


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 40)), min_size=5, max_size=60),
)
def test_two_that_always_wait_stay_within_a_batch_of_each_other_whatever_a_third_does(
    steps: list[tuple[int, int]],
) -> None:
    line = Line(a=10_000, b=10_000)
    got: Counter[TenantId] = Counter()
    for batch, of_c in steps:
        line.waiting[C] = of_c
        got.update(line.take(batch))
        assert abs(got[A] - got[B]) <= 1


def test_what_is_remembered_is_bounded_and_may_be_forgotten() -> None:
    shares = FairShares()
    for number in range(MOST_TENANTS + 10):
        tenant = TenantId(number + 10)
        shares.taken(shares.starts([tenant], [tenant]), {}, {tenant: 5})
    assert len(shares._times) <= MOST_TENANTS + 1
    starts = shares.starts([A, B], [A, B])
    assert starts[A] == starts[B]


@dataclass(frozen=True)
class Lane:
    tenant_id: TenantId
    number: int


def lanes(tenant: TenantId, count: int) -> list[Lane]:
    return [Lane(tenant, number) for number in range(count)]


def test_a_tenant_with_a_thousand_lanes_does_not_hide_one_with_a_single_lane() -> None:
    rounds, all_lanes = Rounds(), lanes(A, 1000) + lanes(B, 1)
    seen: set[Lane] = set()
    for _ in range(17):
        chosen = rounds.choose(all_lanes, 64)
        assert len(chosen) == len(set(chosen)) == 64
        assert Lane(B, 0) in chosen
        seen.update(chosen)
    assert seen == set(all_lanes), "and each of the thousand has its turn"


def test_more_tenants_than_there_is_room_for_have_their_turns_one_after_the_other() -> None:
    rounds = Rounds()
    all_lanes = [lane for number in range(150) for lane in lanes(TenantId(number + 1), 2)]
    seen = [lane for _ in range(5) for lane in rounds.choose(all_lanes, 60)]
    assert Counter(lane.tenant_id for lane in seen) == dict.fromkeys(range(1, 151), 2)
    assert set(seen) == set(all_lanes)


def test_few_lanes_are_taken_as_they_are() -> None:
    assert Rounds().choose(lanes(A, 3) + lanes(B, 2), 5) == lanes(A, 3) + lanes(B, 2)
