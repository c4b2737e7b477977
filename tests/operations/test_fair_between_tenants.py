"""FEATURES 5.5: tenants get equal parts of shared workers, however many runs one of them has waiting."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from mainspring.operations.claim.claimer import MAX_LANES_PER_CLAIM
from mainspring.roles.assembly import Assembly
from mainspring.wire.exchange import QueueShare, RunOrder
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.tenants import Tenants, several_tenants, shares, whose

pytestmark = pytest.mark.anyio


@pytest.fixture
async def tenants(assembly: Assembly, api: httpx.AsyncClient) -> AsyncIterator[Tenants]:
    async with several_tenants(assembly, api) as made:
        await made.add("a", "b", "c")
        yield made


@pytest.fixture
async def worker(tenants: Tenants) -> HandWorker:
    made = await tenants.shared_worker()
    await made.hello()
    return made


async def take(worker: HandWorker, count: int, **fields: Any) -> list[RunOrder]:
    """Ask for `count` runs in one exchange, and report them as done in the next."""
    reply = await worker.exchange(free=count, **fields)
    await worker.report(*(outcome(order) for order in reply.runs))
    return reply.runs


async def test_ten_of_one_come_within_the_next_twenty_though_ten_thousand_of_another_wait(
    tenants: Tenants, worker: HandWorker
) -> None:
    await tenants.submit("a", 10_000)
    assert shares(await take(worker, 100)) == {"a": 100}
    await tenants.submit("b", 10)
    got = [name for _ in range(5) for name in whose(await take(worker, 4))]
    assert Counter(got) == {"a": 10, "b": 10}
    assert shares(await take(worker, 5)) == {"a": 5}


async def test_claims_of_one_at_a_time_alternate(tenants: Tenants, worker: HandWorker) -> None:
    await tenants.submit("a", 50)
    await tenants.submit("b", 50)
    got = [whose(await take(worker, 1))[0] for _ in range(20)]
    assert got == ["a", "b"] * 10


@pytest.mark.parametrize("at_once", [1, 7, 30])
async def test_three_tenants_get_equal_shares(tenants: Tenants, worker: HandWorker, at_once: int) -> None:
    for name, count in (("a", 500), ("b", 60), ("c", 100)):
        await tenants.submit(name, count)
    got: Counter[str] = Counter()
    while sum(got.values()) < 90:
        got.update(whose(await take(worker, at_once)))
    assert max(got.values()) - min(got.values()) <= 1


async def test_a_batch_starts_in_the_order_of_turns(tenants: Tenants, worker: HandWorker) -> None:
    await tenants.submit("a", 20)
    await tenants.submit("b", 3)
    assert whose(await take(worker, 8)) == ["a", "b"] * 3 + ["a", "a"]


async def test_a_tenant_that_was_idle_for_long_gets_no_burst(tenants: Tenants, worker: HandWorker) -> None:
    await tenants.submit("b")
    await tenants.submit("a", 600)
    await take(worker, 501)
    await tenants.submit("b", 100)
    assert shares(await take(worker, 40)) == {"a": 20, "b": 20}


async def test_a_tenant_that_was_served_alone_is_not_behind_afterwards(tenants: Tenants, worker: HandWorker) -> None:
    await tenants.submit("a", 300)
    await take(worker, 300)
    await tenants.submit("b", 100)
    await take(worker, 10)
    await tenants.submit("a", 100)
    assert shares(await take(worker, 40)) == {"a": 20, "b": 20}


async def test_within_a_tenant_the_order_is_as_ever(tenants: Tenants, worker: HandWorker) -> None:
    await tenants.submit("a", 2, priority="low")
    await tenants.submit("a", 2, priority="high")
    await tenants.submit("b", 2)
    runs = {order.job_id for order in await take(worker, 4)}
    high = {run["job_id"] for run in await _runs(tenants, "a") if run["priority"] == "high"}
    assert high <= runs


async def _runs(tenants: Tenants, name: str) -> list[dict[str, Any]]:
    answer = await tenants.clients[name].get("/v1/runs")
    return list(answer.json()["runs"])


async def test_critical_runs_go_first_and_are_shared_too(tenants: Tenants, worker: HandWorker) -> None:
    await tenants.submit("b", 50)
    await tenants.submit("a", 50, priority="critical")
    await tenants.submit("c", 3, priority="critical")
    first = await take(worker, 6)
    assert whose(first) == ["a", "c"] * 3
    assert shares(await take(worker, 10)) == {"a": 10}, "b has nothing critical"


async def test_who_had_many_critical_runs_waits_longer_with_the_rest(tenants: Tenants, worker: HandWorker) -> None:
    for name in ("a", "b"):
        await tenants.submit(name, 50)
    await take(worker, 2)
    await tenants.submit("a", 10, priority="critical")
    assert shares(await take(worker, 10)) == {"a": 10}
    assert shares(await take(worker, 10)) == {"b": 10}
    assert shares(await take(worker, 10)) == {"a": 5, "b": 5}


async def test_many_lanes_of_one_do_not_hide_the_single_lane_of_another(tenants: Tenants) -> None:
    names = [f"t{number}" for number in range(3 * MAX_LANES_PER_CLAIM)]
    worker = await tenants.shared_worker(tasks=names)
    await worker.hello()
    for name in names:
        await tenants.submit("a", 2, task=name)
    await tenants.submit("b", 5, task="t0")
    await tenants.submit("c", 5, task="t1", priority="low")
    assert shares(await take(worker, 9)) == {"a": 3, "b": 3, "c": 3}
    got: Counter[str] = Counter()
    while runs := await take(worker, 10):
        got.update(whose(runs))
    assert got == {"a": 2 * len(names) - 3, "b": 2, "c": 2}, "nothing is left in the end"


async def test_many_critical_lanes_of_a_tenant_hide_neither_each_other_nor_the_rest(tenants: Tenants) -> None:
    """The tenant's own worker has more critical lanes than one claim takes from. The last critical lane and a lane that
    is not critical get their turns."""
    names = [f"t{number}" for number in range(MAX_LANES_PER_CLAIM + 6)]
    worker = HandWorker(tenants.clients["a"], tasks=names)
    await worker.hello()
    for name in names:
        await tenants.submit("a", task=name, priority="critical")
    assert {order.task for order in await take(worker, 100)} | {order.task for order in await take(worker, 100)} == set(
        names
    )
    await tenants.submit("a", task="t0")
    assert [order.task for order in await take(worker, 5)] == ["t0"], "empty critical lanes do not hide it"
    await tenants.submit("a", 2, task=names[-1], priority="critical")
    await tenants.submit("a", 2, task="t1", priority="high")
    assert [order.task for order in await take(worker, 5)] == [names[-1]] * 2 + ["t1"] * 2


async def test_what_a_tenants_own_workers_do_is_not_held_against_it_where_all_share(tenants: Tenants) -> None:
    names = [f"t{number}" for number in range(MAX_LANES_PER_CLAIM + 6)]
    shared, own = await tenants.shared_worker(tasks=names), HandWorker(tenants.clients["a"], tasks=names)
    for name in names:
        await tenants.submit("a", 3, task=name)
        await tenants.submit("b", 3, task=name)
    for worker in (shared, own):
        await worker.hello()
    assert shares(await take(shared, 10)) == {"a": 5, "b": 5}
    assert shares(await take(own, 60)) == {"a": 60}
    assert shares(await take(shared, 10)) == {"a": 5, "b": 5}


async def test_a_worker_that_divides_its_slots_is_fair_within_each_share(tenants: Tenants) -> None:
    worker = await tenants.shared_worker(queues=["heavy", "light"])
    await worker.hello()
    for queue, name, count in (("heavy", "a", 30), ("light", "a", 30), ("light", "b", 30), ("heavy", "c", 1)):
        await tenants.submit(name, count, queue=queue)
    runs = await take(worker, 12, shares=[QueueShare(4, "heavy"), QueueShare(8, "light")])
    assert shares(order for order in runs if order.queue == "heavy") == {"a": 3, "c": 1}
    assert shares(order for order in runs if order.queue == "light") == {"a": 4, "b": 4}


async def test_what_one_pool_gives_is_not_held_against_a_tenant_at_another(tenants: Tenants) -> None:
    video = await tenants.shared_worker(tasks=["video"])
    mail = await tenants.shared_worker(tasks=["mail"])
    for worker in (video, mail):
        await worker.hello()
    for name in ("a", "b"):
        await tenants.submit(name, 200, task="video")
    await tenants.submit("a", 60, task="mail")
    await tenants.submit("c", 60, task="mail")
    assert shares(await take(video, 200)) == {"a": 100, "b": 100}
    assert shares(await take(mail, 20)) == {"a": 10, "c": 10}


async def test_room_for_a_task_holds_across_tenants(tenants: Tenants) -> None:
    worker = await tenants.shared_worker(tasks=["noop", "slow"])
    await worker.hello()
    for name in ("a", "b"):
        await tenants.submit(name, 10, task="slow")
        await tenants.submit(name, 10)
    runs = await take(worker, 10, room={"slow": 2})
    assert Counter(order.task for order in runs)["slow"] <= 2
    assert len(runs) == 10
    assert set(shares(runs).values()) == {5}


async def test_a_worker_of_one_tenant_takes_only_its_own(tenants: Tenants, worker: HandWorker) -> None:
    await tenants.submit("a", 5)
    await tenants.submit("b", 5)
    own = HandWorker(tenants.clients["b"])
    assert shares((await own.hello(free=50)).runs) == {"b": 5}
    assert shares(await take(worker, 50)) == {"a": 5}
