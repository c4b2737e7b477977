"""Fire: a compare-and-set under a lease. A job that does not match does not fire, and no fire time creates two runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import asyncpg
import msgspec
import pytest

from mainspring.domain.job import Delivery, Overlap, Spec
from mainspring.domain.schedules.misfire import FirePlan, Missed
from mainspring.domain.transitions import StoredJobStatus, StoredState
from mainspring.kernel.ids import DEFAULT_TENANT, uuid7
from mainspring.store import fires, jobs, leases, missed_fires

from .fire_scene import MINUTE, Scene, run_now
from .rows import a_job, at, ended, job_row, live, until_blocked

pytestmark = pytest.mark.anyio


async def test_a_fire_gives_a_run_built_from_the_row_and_moves_the_job_on(scene: Scene) -> None:
    await scene.job()
    fired = await scene.fire(scene.again())
    assert (fired.created, fired.moved) == ({scene.lane_id: 1}, [0])
    [run] = await live(scene.connection)
    assert (run["job_id"], run["trigger"], run["scheduled_for"]) == ("nightly", None, scene.moment)
    assert (run["state"], run["attempt"], run["fence"]) == (StoredState.QUEUED, 0, 0)
    assert (run["lane_id"], run["payload"], run["max_attempts"]) == (scene.lane_id, '{"n": 1}', 4)
    assert run["ready_at"] >= scene.moment
    job = await job_row(scene.connection, "nightly")
    assert (job["next_fire_at"], job["last_fired_for"]) == (scene.moment + MINUTE, scene.moment)
    assert (job["status"], job["version"]) == (StoredJobStatus.SCHEDULED, 1)


async def test_a_schedule_without_a_next_fire_is_completed(scene: Scene) -> None:
    await scene.job()
    due = scene.again()
    await scene.fire(
        fires.DueAgain(due.tenant_id, due.job_id, 1, scene.moment, FirePlan([scene.moment], [], scene.moment, None))
    )
    job = await job_row(scene.connection, "nightly")
    assert (job["status"], job["next_fire_at"]) == (StoredJobStatus.COMPLETED, None)


async def stale_epoch(scene: Scene) -> None:
    scene.held = {shard: epoch - 1 for shard, epoch in scene.held.items()}


async def taken_over(scene: Scene) -> None:
    await scene.connection.execute("update mainspring.shard_leases set owner = $1, epoch = epoch + 1", uuid7())


async def released(scene: Scene) -> None:
    await leases.release(scene.connection, scene.node, scene.held)


async def same_epoch_of_another(scene: Scene) -> None:
    scene.node = uuid7()


async def no_lease(scene: Scene) -> None:
    scene.held = {}


async def a_lease_of_other_shards(scene: Scene) -> None:
    own = {row["shard"] for row in await scene.connection.fetch("select shard from mainspring.jobs")}
    scene.held = {shard: epoch for shard, epoch in scene.held.items() if shard not in own}


async def changed(scene: Scene) -> None:
    await scene.connection.execute("update mainspring.jobs set version = version + 1")


async def moved_on(scene: Scene) -> None:
    await scene.connection.execute("update mainspring.jobs set next_fire_at = next_fire_at + interval '1 us'")


async def moved_off(scene: Scene) -> None:
    await scene.connection.execute("update mainspring.jobs set next_fire_at = null")


async def paused(scene: Scene) -> None:
    await scene.connection.execute("update mainspring.jobs set status = $1", int(StoredJobStatus.PAUSED))


async def deleted(scene: Scene) -> None:
    await scene.connection.execute("delete from mainspring.jobs")


OBSTACLES = [
    stale_epoch, taken_over, released, same_epoch_of_another, no_lease, a_lease_of_other_shards,
    changed, moved_on, moved_off, paused, deleted,
]  # fmt: skip


@pytest.mark.parametrize("obstacle", OBSTACLES, ids=lambda obstacle: obstacle.__name__)
async def test_nothing_is_fired_and_nothing_written_when_anything_does_not_match(
    scene: Scene, obstacle: Callable[[Scene], Awaitable[None]]
) -> None:
    await scene.job("nightly", overlap=Overlap.SKIP)
    await scene.job("hourly", overlap=Overlap.ALLOW)
    await a_job(scene.connection, scene.lane_id, "later", at(scene.moment), scene.moment)
    await obstacle(scene)
    before = await scene.connection.fetch("select * from mainspring.jobs order by job_id")
    assert await scene.fire(scene.again("nightly"), scene.again("hourly")) == fires.FiredRows({}, [])
    unlocked = await fires.fire_recurring(scene.connection, scene.node, scene.held, [scene.again("hourly")])
    assert unlocked == fires.FiredRows({}, [])
    assert await scene.fire_once(await scene.once("later", uuid7())) == fires.FiredRows({}, [])
    assert await scene.connection.fetch("select * from mainspring.jobs order by job_id") == before
    assert await live(scene.connection) == []
    assert await ended(scene.connection) == []


async def test_of_a_batch_those_that_match_fire(scene: Scene) -> None:
    for job_id in ("a", "b", "c"):
        await scene.job(job_id, overlap=Overlap.ALLOW)
    await scene.connection.execute("update mainspring.jobs set version = 2 where job_id = 'b'")
    fired = await scene.fire(*(scene.again(job_id) for job_id in ("a", "b", "c")))
    assert (fired.created, sorted(fired.moved)) == ({scene.lane_id: 2}, [0, 2])
    assert {row["job_id"] for row in await live(scene.connection)} == {"a", "c"}


async def test_last_fired_for_only_rises(scene: Scene) -> None:
    """Even if next_fire_at is set back, a fire time is not used twice."""
    await scene.job(overlap=Overlap.ALLOW)
    await scene.fire(scene.again())
    await scene.fire(scene.again(minutes=1))
    for minutes in (0, 1):
        await scene.connection.execute(
            "update mainspring.jobs set next_fire_at = $1", scene.again(minutes=minutes).next_fire_at
        )
        assert await scene.fire(scene.again(minutes=minutes)) == fires.FiredRows({}, [])
    assert (await job_row(scene.connection, "nightly"))["last_fired_for"] == scene.moment + MINUTE
    assert len(await live(scene.connection)) == 2


async def test_last_nominal_for_only_rises(scene: Scene) -> None:
    """A second fire at a later time, for a nominal time that has run: no run, whichever statement it is."""
    await scene.job(overlap=Overlap.ALLOW)
    moment, later = scene.moment, scene.moment + MINUTE
    first = scene.again()
    await scene.fire(msgspec.structs.replace(first, plan=FirePlan([moment], [], moment, later, moment, [moment])))
    job = await job_row(scene.connection, "nightly")
    assert (job["last_fired_for"], job["last_nominal_for"]) == (moment, moment)
    assert [run["nominal_for"] for run in await live(scene.connection)] == [moment]
    twice = scene.again(minutes=1)
    missed = Missed(later, later, 1, "late")
    for plan in (
        FirePlan([later], [], later, later + MINUTE, moment, [moment]),
        FirePlan([], [missed], later, later + MINUTE, moment),
        FirePlan([later], [], later, later + MINUTE, moment - MINUTE, [moment - MINUTE]),
    ):
        wrong = msgspec.structs.replace(twice, plan=plan)
        assert await scene.fire(wrong) == fires.FiredRows({}, [])
        assert await fires.fire_recurring(scene.connection, scene.node, scene.held, [wrong]) == fires.FiredRows({}, [])
        assert await fires.fire_free(scene.connection, scene.node, scene.held, [wrong]) == fires.FiredRows({}, [])
        assert await fires.fire_locked_recurring(scene.connection, wrong) == fires.FiredRows({}, [])
        assert await job_row(scene.connection, "nightly") == job
    assert len(await live(scene.connection)) == 1
    assert await scene.connection.fetchval("select count(*) from mainspring.missed_fires") == 0


async def test_a_job_whose_next_fire_is_dealt_with_moves_on_without_a_run(scene: Scene) -> None:
    await scene.job(overlap=Overlap.ALLOW)
    await scene.fire(scene.again())
    later, nominal = scene.moment + MINUTE, scene.moment - MINUTE
    plan = FirePlan([], [], later, later + MINUTE, nominal)
    fired = await scene.fire(msgspec.structs.replace(scene.again(minutes=1), plan=plan))
    assert (fired.created, fired.moved) == ({}, [0])
    job = await job_row(scene.connection, "nightly")
    assert (job["next_fire_at"], job["last_nominal_for"]) == (later + MINUTE, scene.moment)


async def test_a_one_time_job_does_not_fire_for_a_time_that_is_dealt_with(scene: Scene) -> None:
    await a_job(scene.connection, scene.lane_id, "later", at(scene.moment), scene.moment)
    await scene.connection.execute("update mainspring.jobs set last_nominal_for = next_fire_at")
    assert await scene.fire_once(await scene.once("later", uuid7())) == fires.FiredRows({}, [])
    locked = await fires.fire_locked_one_time(scene.connection, DEFAULT_TENANT, "later", 1, scene.moment)
    assert locked == fires.FiredRows({}, [])


async def test_jobs_with_and_without_jitter_fire_in_one_batch(scene: Scene) -> None:
    nominal = scene.moment - MINUTE
    plans = {
        "plain": FirePlan([scene.moment], [], scene.moment, None),
        "jitter": FirePlan([scene.moment], [], scene.moment, None, nominal, [nominal]),
        "other": FirePlan([scene.moment], [], scene.moment, None),
    }
    for job_id in plans:
        await scene.job(job_id, overlap=Overlap.ALLOW)
    await scene.fire(*(msgspec.structs.replace(scene.again(job_id), plan=plan) for job_id, plan in plans.items()))
    found = {run["job_id"]: run["nominal_for"] for run in await live(scene.connection)}
    assert found == {"plain": None, "jitter": nominal, "other": None}
    rows = await scene.connection.fetch("select job_id, last_nominal_for from mainspring.jobs")
    assert dict(rows) == {"plain": scene.moment, "jitter": nominal, "other": scene.moment}


async def test_a_grant_that_is_under_way_makes_the_fire_wait_and_then_fire_nothing(
    scene: Scene, others: list[asyncpg.Connection]
) -> None:
    await scene.job()
    firing, granting = others
    transaction = granting.transaction()
    await transaction.start()
    await granting.execute("update mainspring.shard_leases set owner = $1, epoch = epoch + 1", uuid7())
    fire = asyncio.create_task(scene.fire(scene.again(), on=firing))
    await until_blocked(scene.connection, firing.get_server_pid())
    await transaction.commit()
    assert await fire == fires.FiredRows({}, [])
    assert await live(scene.connection) == []


@pytest.mark.parametrize("overlap", list(Overlap), ids=lambda overlap: overlap.word)
async def test_the_second_of_two_fires_of_one_moment_waits_for_the_first_and_does_nothing(
    scene: Scene, others: list[asyncpg.Connection], overlap: Overlap
) -> None:
    """Both nodes assume that they own the shard, under the same epoch."""
    await scene.job(overlap=overlap)
    first, second = others
    transaction = first.transaction()
    await transaction.start()
    assert (await fires.fire_recurring(first, scene.node, scene.held, [scene.again()])).moved == [0]
    late = asyncio.create_task(fires.fire_recurring(second, scene.node, scene.held, [scene.again()]))
    await until_blocked(scene.connection, second.get_server_pid())
    await transaction.commit()
    assert await late == fires.FiredRows({}, [])
    assert len(await live(scene.connection)) == 1
    assert await ended(scene.connection) == []


async def test_the_second_of_two_fires_of_a_one_time_job_waits_for_the_first_and_does_nothing(
    scene: Scene, others: list[asyncpg.Connection]
) -> None:
    await a_job(scene.connection, scene.lane_id, "later", at(scene.moment), scene.moment)
    first, second = others
    transaction = first.transaction()
    await transaction.start()
    due = await scene.once("later", uuid7())
    assert (await scene.fire_once(due, on=first)).created == {scene.lane_id: 1}
    late = asyncio.create_task(scene.await_and_fire_once(due, on=second))
    await until_blocked(scene.connection, second.get_server_pid())
    await transaction.commit()
    assert await late == fires.FiredRows({}, [])
    assert len(await live(scene.connection)) == 1


async def test_many_fires_of_the_same_jobs_at_once_give_one_run_each(
    scene: Scene, others: list[asyncpg.Connection]
) -> None:
    names = [f"job-{number}" for number in range(40)]
    for number, job_id in enumerate(names):
        await scene.job(job_id, overlap=Overlap(number % 2))
    due = [scene.again(job_id) for job_id in names]
    for _ in range(3):
        await asyncio.gather(
            scene.fire(*due, on=others[0]),
            scene.fire(*reversed(due), on=others[1]),  # in another order, but locks are taken in key order
        )
    runs = await live(scene.connection)
    assert sorted(row["job_id"] for row in runs) == sorted(names)
    assert await ended(scene.connection) == []


async def test_a_one_time_job_leaves_jobs_and_becomes_a_run_with_its_id(scene: Scene) -> None:
    run_id = uuid7()
    await a_job(scene.connection, scene.lane_id, str(run_id), at(scene.moment), scene.moment, id_generated=True)
    assert (await scene.fire_once(await scene.once(str(run_id), run_id))).created == {scene.lane_id: 1}
    assert await jobs.get(scene.connection, DEFAULT_TENANT, str(run_id)) is None
    [run] = await live(scene.connection)
    assert (run["run_id"], run["job_id"], run["trigger"]) == (run_id, None, "at")
    assert (run["scheduled_for"], run["payload"]) == (scene.moment, '{"n": 1}')


async def test_a_one_time_job_with_an_id_of_its_owners_keeps_that(scene: Scene) -> None:
    await a_job(scene.connection, scene.lane_id, "launch", at(scene.moment), scene.moment)
    await scene.fire_once(await scene.once("launch", uuid7()))
    [run] = await live(scene.connection)
    assert (run["job_id"], run["trigger"]) == ("launch", "at")


async def test_missed_ranges_are_recorded_with_the_fire_or_not_at_all(scene: Scene) -> None:
    await scene.job()
    gap = Missed(scene.moment - 3 * MINUTE, scene.moment - MINUTE, 3, "coalesced into a later fire")
    plan = FirePlan([scene.moment], [gap], scene.moment, scene.moment + MINUTE)
    due = fires.DueAgain(DEFAULT_TENANT, "nightly", 1, scene.moment, plan)
    await scene.fire(due)
    await scene.fire(due)  # the job has moved on already
    [missed] = await missed_fires.of_job(scene.connection, DEFAULT_TENANT, "nightly", 10)
    assert (missed.first_at, missed.last_at) == (gap.first, gap.last)
    assert (missed.count, missed.reason) == (3, gap.reason)


async def test_the_most_overdue_job_says_how_late_we_are(scene: Scene) -> None:
    assert await fires.oldest_due(scene.connection, list(scene.held)) is None
    await scene.job()
    await scene.connection.execute(
        """update mainspring.jobs
           set next_fire_at = clock_timestamp() - interval '90 s', created_at = clock_timestamp() - interval '1 day'"""
    )
    late = await fires.oldest_due(scene.connection, list(scene.held))
    assert late is not None and 90 <= late < 150
    shard = (await job_row(scene.connection, "nightly"))["shard"]
    assert await fires.oldest_due(scene.connection, [other for other in scene.held if other != shard]) is None


@pytest.mark.parametrize("by_hand", [False, True], ids=["fired", "by hand"])
@pytest.mark.parametrize("delivery", list(Delivery), ids=lambda delivery: delivery.value)
@pytest.mark.parametrize("overlap", list(Overlap), ids=lambda overlap: overlap.word)
async def test_a_run_knows_whether_two_attempts_of_it_may_overlap(
    scene: Scene, overlap: Overlap, delivery: Delivery, by_hand: bool
) -> None:
    await scene.job(overlap=overlap, spec=Spec(delivery=delivery))
    if by_hand:
        await run_now(scene.connection)
    else:
        await scene.fire(scene.again())
    [run] = await live(scene.connection)
    assert run["exclusive"] is (overlap is not Overlap.ALLOW or delivery is Delivery.AT_MOST_ONCE)


@pytest.mark.parametrize("delivery", list(Delivery), ids=lambda delivery: delivery.value)
async def test_a_one_time_run_is_exclusive_when_it_is_at_most_once(scene: Scene, delivery: Delivery) -> None:
    spec = Spec(delivery=delivery)
    await a_job(scene.connection, scene.lane_id, "later", at(scene.moment), scene.moment, spec=spec)
    await scene.fire_once(await scene.once("later", uuid7()))
    [run] = await live(scene.connection)
    assert run["exclusive"] is (delivery is Delivery.AT_MOST_ONCE)
